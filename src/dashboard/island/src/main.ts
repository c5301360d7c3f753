// What pages of the dashboard do more where scripts run. Each part looks for its elements, and does nothing without
// them.

import { chooseColumns } from "./columns";
import { addCopyButtons } from "./copy";
import { followEvents } from "./events";
import { checkJson } from "./json_fields";
import { listenToKeys } from "./keys";

chooseColumns();
addCopyButtons();
followEvents();
checkJson();
listenToKeys();
