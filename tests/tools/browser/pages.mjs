// The pages of the dashboard, as data: what each is called, where it is, and who sees it. `audit.mjs` looks at every one
// in both colour schemes, narrow and wide; `pictures.mjs` takes a picture of those with a `picture`.
//
// `as` is "visitor", "owner" (of the demo) or "both". `ready` is a selector that must be there. `status` is 200 unless
// given; `act` does something on the page. A path that begins with `{pushed}`, `{fetched}` or `{running}` is one of a dataset that `demo.mjs` makes.

const COUNTRIES = "/ui/1/world-countries";

export const PAGES = [
  { name: "catalogue", path: "/", as: "both", ready: ".card" },
  { name: "search", path: "/?q=air", as: "both", ready: ".card" },
  { name: "search, nothing found", path: "/?q=nothing+like+it", as: "visitor", ready: ".hero" },
  { name: "sign-in", path: "/ui/sign-in", as: "visitor", ready: "#password" },
  { name: "browse", path: `${COUNTRIES}/active/`, as: "both", ready: "tbody tr" },
  {
    name: "browse, sorted",
    path: "/ui/4/football-matches/active/?filter_gte=home_score:6&sort=date:desc",
    as: "owner",
    ready: "tbody tr",
    picture: "browse",
  },
  {
    name: "browse, keywords",
    path: "/ui/5/us-airports/active/?keywords=island&sort=name",
    as: "owner",
    ready: "mark",
    picture: "keywords",
  },
  {
    name: "browse, keywords and conditions",
    path: `${COUNTRIES}/active/?keywords=island,france&filter_gt=area:100&sort=area:desc&limit=20`,
    as: "both",
    ready: "mark",
  },
  { name: "browse, columns", path: `${COUNTRIES}/active/?columns=region,area,name`, as: "visitor", ready: "tbody" },
  { name: "browse, JSON", path: "/ui/4/football-matches/active/?view=json&limit=5", as: "visitor", ready: ".json pre" },
  { name: "browse, count", path: "/ui/3/earthquakes/v1/?count=true", as: "visitor", ready: ".big" },
  { name: "browse, nothing", path: "/ui/3/earthquakes/v1/?filter=id:none", as: "visitor", ready: "#result" },
  {
    name: "browse, hints",
    path: `${COUNTRIES}/active/?filter=categry:network&filter_gt=name.common:5`,
    as: "both",
    ready: ".hints a",
  },
  { name: "browse, a mistake", path: "/ui/3/earthquakes/v1/?limit=x", as: "visitor", ready: "#problem", status: 400 },
  { name: "entity", path: `${COUNTRIES}/v1/entity/60`, as: "both", ready: ".tree" },
  { name: "profile", path: `${COUNTRIES}/v1/profile`, as: "both", ready: ".path", picture: "profile" },
  { name: "versions", path: `${COUNTRIES}/versions`, as: "both", ready: ".timeline", picture: "versions" },
  { name: "pin", path: `${COUNTRIES}/manage/pin?version=1`, as: "owner", ready: "form.line button" },
  { name: "freeze", path: `${COUNTRIES}/manage/freeze?version=1`, as: "owner", ready: "button.danger" },
  {
    name: "explain",
    path: `${COUNTRIES}/v1/explain?filter=region:europe`,
    as: "owner",
    ready: ".stages",
    picture: "explain",
  },
  { name: "settings", path: `${COUNTRIES}/settings`, as: "owner", ready: "#description", picture: "settings" },
  { name: "settings, suggested checks", path: `${COUNTRIES}/settings?suggest=checks`, as: "owner", ready: "#required" },
  { name: "settings of a private dataset", path: "/ui/7/palmer-penguins/settings", as: "owner", ready: "#key" },
  { name: "source that holds a key", path: "{fetched}/settings", as: "owner", ready: "#source" },
  { name: "clone", path: `${COUNTRIES}/clone`, as: "owner", ready: "#name" },
  { name: "comparison begun", path: "{pushed}/diff?of=2", as: "owner", ready: "#v2" },
  { name: "new dataset", path: "/ui/new", as: "owner", ready: "#source" },
  { name: "upload", path: "{pushed}/refresh", as: "owner", ready: "#file" },
  { name: "refresh", path: "{fetched}/refresh", as: "owner", ready: ".times", picture: "refresh" },
  { name: "refresh that runs", path: "{running}/refresh", as: "owner", ready: "[data-stage]" },
  { name: "no version", path: "{running}/active/", as: "owner", ready: "[role=alert]", status: 404 },
  { name: "webhook", path: "{pushed}/webhook", as: "owner", ready: "tbody tr", picture: "webhook" },
  { name: "no webhook", path: "{fetched}/webhook", as: "owner", ready: "#url" },
  { name: "webhook, deleted", path: "{pushed}/webhook/delete", as: "owner", ready: "button.danger" },
  { name: "usage", path: "{pushed}/usage", as: "owner", ready: "tfoot" },
  { name: "usage of nothing", path: "{running}/usage?days=7", as: "owner", ready: ".chart" },
  { name: "versions with an alternate", path: "{pushed}/versions", as: "owner", ready: ".timeline" },
  { name: "diff", path: "{pushed}/diff?v1=1&v2=3", as: "owner", ready: ".record", picture: "diff" },
  {
    name: "diff, one kind, whole",
    path: "{pushed}/diff?v1=2&v2=3&change_type=added&view=whole",
    as: "owner",
    ready: ".record",
  },
  { name: "diff of an alternate", path: "{pushed}/diff?v1=3&v2=3&alt=true", as: "owner", ready: ".record" },
  { name: "diff of the same", path: "{pushed}/diff?v1=3&v2=3", as: "owner", ready: ".note" },
  { name: "diff, a mistake", path: "{pushed}/diff?v1=x&v2=3", as: "owner", ready: "#problem", status: 400 },
  { name: "alternate", path: "{pushed}/v3/alternate", as: "owner", ready: "#position" },
  { name: "no alternate", path: "{pushed}/v2/alternate", as: "owner", ready: ".note" },
  { name: "entities of an alternate", path: "{pushed}/v3/alt/", as: "owner", ready: "tbody tr" },
  { name: "entity to edit", path: "{pushed}/v3/alt/entity/1", as: "owner", ready: ".tree" },
  {
    name: "editor",
    path: "{pushed}/v3/alternate/edit?position=1",
    as: "owner",
    ready: "#text",
    picture: "editor",
    act: async (page) => {
      const text = page.getByLabel("Entity as JSON");
      await text.fill((await text.inputValue()).replace('"bikes": 0', '"bikes": 9'));
      await page.getByRole("button", { name: "Preview changes" }).click();
      await page.locator("#preview").waitFor();
    },
  },
  { name: "new entity", path: "{pushed}/v3/alternate/add", as: "owner", ready: "#text" },
  { name: "removal", path: "{pushed}/v3/alternate/remove?position=1", as: "owner", ready: "#positions" },
  { name: "alternate, deleted", path: "{pushed}/v3/alternate/delete", as: "owner", ready: "button.danger" },
  {
    name: "histogram",
    path: "/ui/3/earthquakes/v1/profile",
    as: "both",
    ready: ".path",
    picture: "histogram",
    shows: "text=Each range includes its lower bound",
    act: async (page) => {
      await page.getByRole("link", { name: /^Histogram/ }).first().click();
      await page.getByText("Each range includes its lower bound").waitFor();
    },
  },
  { name: "account", path: "/ui/account", as: "owner", ready: "#old" },
  { name: "no page", path: "/ui/nothing", as: "both", ready: "[role=alert]", status: 404 },
  { name: "no dataset", path: "/ui/99/nothing/active/", as: "visitor", ready: "[role=alert]", status: 404 },
  { name: "not signed in", path: "/ui/account", as: "visitor", ready: "[role=alert]", status: 401 },
];

export const pagesOf = (who) => PAGES.filter(({ as }) => as === who || as === "both");
