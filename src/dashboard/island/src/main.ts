// Enhances the pages of the dashboard. Each function looks for its elements and does nothing if there are none.

import { chooseColumns } from "./columns";
import { addCopyButtons } from "./copy";
import { fillCounts } from "./count";
import { followEvents } from "./events";
import { openFields } from "./fields";
import { checkJson } from "./json_fields";
import { listenToKeys } from "./keys";
import { later } from "./later";
import { keepPositions } from "./positions";
import { sendOnce } from "./submits";

later(chooseColumns);
openFields();
checkJson();
listenToKeys();
keepPositions();
sendOnce();
later(() => {
  addCopyButtons();
  fillCounts();
  followEvents();
});
