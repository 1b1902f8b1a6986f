// Preact, its hooks and htm, with an id for the elements that name each other.

import { useState } from "./vendor/preact-htm.js";

export * from "./vendor/preact-htm.js";

let ids = 0;

export const useId = () => useState(() => `id-${++ids}`)[0];
