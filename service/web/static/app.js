// The page: views, the served models, the API key, and the state in the address.

import { html, render, useEffect, useRef, useState } from "./hooks.js";
import { apiKey, call } from "./api.js";
import { readAddress, writeAddress } from "./address.js";
import { Service } from "./answer.js";
import { plural } from "./format.js";
import { VIEWS } from "./views.js";

const USUAL = ["next-word", "score", "translate", "classify"]; // those listed where no model has their operation, too
const WRITTEN = 300; // milliseconds after a change; browsers bound how often a page may change its address
const POLL = 1000; // milliseconds between two questions whether the server is ready

const names = Object.keys(VIEWS);
const covered = names.map((name) => VIEWS[name].operation);

function useAddress() {
  const [view, setView] = useState(() => readAddress(location.hash, VIEWS).view);
  const [states, setStates] = useState(() => {
    const found = readAddress(location.hash, VIEWS);
    return Object.fromEntries(names.map((name) => [name, name === found.view ? found.fields : VIEWS[name].defaults]));
  });
  useEffect(() => {
    // The address may have changed again since: by the timer below.
    const read = (event) => {
      const found = readAddress(new URL(event.newURL).hash, VIEWS);
      setView(found.view);
      setStates((old) => ({ ...old, [found.view]: found.fields }));
    };
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  const written = (name) => writeAddress(name, states[name], VIEWS[name].defaults);
  useEffect(() => {
    const timer = setTimeout(() => {
      // The page may not have been told yet that the address is another view's.
      if (readAddress(location.hash, VIEWS).view === view) history.replaceState(null, "", written(view));
    }, WRITTEN);
    return () => clearTimeout(timer);
  }, [view, states]);
  const update = (change) => setStates((old) => ({ ...old, [view]: { ...old[view], ...change } }));
  return { view, fields: states[view], update, written };
}

// The served models, asked for again while the server loads them: {models, problem, loading, reload}.
function useModels(key) {
  const [state, setState] = useState({ models: null, problem: null, loading: null });
  const timer = useRef(0);
  const load = async () => {
    clearTimeout(timer.current);
    try {
      const [{ body }, loading] = await Promise.all([call("v1/models"), whyNotReady()]);
      setState({ models: body.models, problem: null, loading });
      if (loading) timer.current = setTimeout(load, POLL);
    } catch (problem) {
      setState((old) => ({ ...old, problem, loading: null }));
      if (problem.retryAfter !== null) timer.current = setTimeout(load, POLL);
    }
  };
  useEffect(() => {
    load();
    return () => clearTimeout(timer.current);
  }, [key]);
  return { ...state, reload: load };
}

async function whyNotReady() {
  try {
    await call("readyz");
    return null;
  } catch (problem) {
    if (problem.kind !== "loading") throw problem;
    return problem.detail;
  }
}

// The component of a view, null until its module is loaded; asked for again while the server cannot be reached.
function useComponent(name) {
  const [loaded, setLoaded] = useState({});
  useEffect(() => {
    let timer;
    const load = () =>
      VIEWS[name].load().then(
        ({ View }) => setLoaded((old) => ({ ...old, [name]: View })),
        () => (timer = setTimeout(load, POLL)),
      );
    if (!loaded[name]) load();
    return () => clearTimeout(timer);
  }, [name]);
  return loaded[name] ?? null;
}

function App() {
  const { view, fields, update, written } = useAddress();
  const [key, setKey] = useState(apiKey.get());
  const [keyRefused, setKeyRefused] = useState(false);
  const served = useModels(key);
  const changeKey = (value) => {
    apiKey.set(value);
    setKeyRefused(false);
    setKey(value);
  };
  const onProblem = (problem) => {
    if (problem.kind === "key") setKeyRefused(true);
    if (problem.kind === "loading" || problem.kind === "gone") served.reload();
  };
  const { title, operation } = VIEWS[view];
  const View = useComponent(view);
  const offered = [...new Set(served.models?.flatMap((model) => model.operations))];
  const others = offered.filter((each) => !covered.includes(each));
  const asked = operation ? [operation] : others;
  const models = (served.models ?? []).filter((model) => model.operations.some((each) => asked.includes(each)));
  const has = (name) => (VIEWS[name].operation ? offered.includes(VIEWS[name].operation) : others.length > 0);
  const listed = names.filter((name) => USUAL.includes(name) || name === view || has(name));
  useEffect(() => {
    document.title = `${title} · Softserve`;
  }, [title]);
  const keyWanted = keyRefused || served.problem?.kind === "key";
  return html`<${Service.Provider} value=${{ models, key, onProblem }}>
    <header class="top">
      <p class="name">Softserve</p>
      <nav aria-label="Views"><ul>
        ${listed.map((name) => html`<li key=${name}><a href=${written(name)} aria-current=${name === view ? "page" : undefined}>${VIEWS[name].title}</a></li>`)}
      </ul></nav>
      <p class="server"><${ServerState} served=${served} /> <a href="docs">API reference</a></p>
    </header>
    ${(keyWanted || key) && html`<${KeyForm} key=${`${key}${keyWanted}`} value=${key} wanted=${keyWanted} onChange=${changeKey} />`}
    <main>
      <h1>${title}</h1>
      ${models.length
        ? View && html`<${View} key=${view} fields=${fields} update=${update} models=${models} others=${others} />`
        : html`<${NoModel} title=${title} served=${served} />`}
    </main>
  <//>`;
}

function ServerState({ served }) {
  const { models, problem, loading } = served;
  if (problem) return html`<span class="state wrong">${problem.kind === "key" ? "key needed" : "not reachable"}</span>`;
  if (loading) return html`<span class="state">loading</span>`;
  if (models === null) return html`<span class="state">…</span>`;
  return html`<span class="state ready">${plural(models.length, "model")} ready</span>`;
}

function NoModel({ title, served }) {
  const { models, problem, loading } = served;
  let text = "";
  if (problem?.kind === "key") text = "The server asks for an API key. Enter it above.";
  else if (problem) text = `${problem.detail} The page tries again every second.`;
  else if (loading) text = `The server is not ready: ${loading}. The page tries again every second.`;
  else if (models !== null) text = `This server has no model for “${title}”.`;
  return html`<p role="status" class="status">${text}</p>`;
}

function KeyForm({ value, wanted, onChange }) {
  const [text, setText] = useState(value);
  const submit = (event) => {
    event.preventDefault();
    onChange(text.trim());
  };
  return html`<form class="key" onSubmit=${submit}>
    <label for="api-key">API key</label>
    <input id="api-key" type="password" autocomplete="off" value=${text} aria-describedby="api-key-hint"
      aria-invalid=${wanted && value ? "true" : undefined} onInput=${(event) => setText(event.target.value)} />
    <button type="submit">Use</button>
    ${value && html`<button type="button" class="quiet" onClick=${() => onChange("")}>Forget</button>`}
    <span class="hint" id="api-key-hint">${wanted && value ? "The server does not accept this key." : "Kept until this tab is closed, never part of the address."}</span>
  </form>`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
