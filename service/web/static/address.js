// The state of a view in the page's address: `#view?field=value`. Browsers never send this part to a server, so that
// texts are in no access log; API keys are never part of it.

// Fields of the defaults, with the values of the address where it has any of the right type.
export function readAddress(hash, views) {
  const [name, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const view = Object.hasOwn(views, name) ? name : Object.keys(views)[0];
  const { defaults } = views[view];
  const given = new URLSearchParams(query);
  const fields = { ...defaults };
  for (const [field, value] of Object.entries(defaults)) {
    if (!given.has(field)) continue;
    const text = given.get(field);
    if (typeof value !== "number") fields[field] = text;
    else if (/^\d+(\.\d+)?$/.test(text)) fields[field] = Number(text);
  }
  return { view, fields };
}

// The address of a view, without the fields that have their defaults.
export function writeAddress(view, fields, defaults) {
  const changed = Object.entries(fields).filter(([field, value]) => value !== defaults[field]);
  const query = new URLSearchParams(changed.map(([field, value]) => [field, String(value)]));
  return changed.length ? `#${view}?${query}` : `#${view}`;
}
