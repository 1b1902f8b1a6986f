// The frame of a view's results: what happened in words, the results, the timing, and the request as commands.

import { html, useContext, useState } from "./hooks.js";
import { Service } from "./answer.js";
import { milliseconds } from "./format.js";
import { CopyButton } from "./parts.js";
import { curl, python } from "./snippets.js";

const TITLES = {
  key: "The server asks for an API key.",
  overloaded: "The server is overloaded.",
  loading: "The server is not ready.",
  gone: "The server is gone.",
  late: "The server did not answer before the deadline.",
  refused: "The server refused this input.",
  broken: "The server has failed.",
};

// `summary` says the results in a sentence; it is announced once they have arrived.
export function Frame({ answers, summary, children }) {
  const { results, problem, waiting, calls, timings } = answers;
  const said = problem ? TITLES[problem.kind] : results && summary(results);
  return html`<section class="results" aria-label="Results" aria-busy=${waiting ? "true" : "false"}>
    <p role="status" class=${problem ? "status wrong" : "status"}>${said}</p>
    ${problem && html`<${Notice} problem=${problem} retryIn=${answers.retryIn} retry=${answers.retry} />`}
    ${results && html`<div class=${waiting ? "stale" : ""}>${children(results)}</div>`}
    ${results && html`<${Timings} timings=${timings} calls=${calls} />`}
    ${calls.length > 0 && html`<${Request} calls=${calls} />`}
  </section>`;
}

// Problems that the same request would have again.
const PERMANENT = ["key", "refused"];

function Notice({ problem, retryIn, retry }) {
  const seconds = Math.ceil(retryIn);
  return html`<div class="notice">
    <p>${problem.detail}</p>
    ${problem.kind === "key" && html`<p>Enter it at the top of the page.</p>`}
    ${!PERMANENT.includes(problem.kind) && html`<p>${retryIn !== null && `The page tries again in ${seconds} second${seconds === 1 ? "" : "s"}. `}
          <button type="button" onClick=${retry}>Try again now</button></p>`}
  </div>`;
}

const STEPS = [
  ["queue", "queue"],
  ["tokenize", "tokenize"],
  ["infer", "inference"],
];

function Timings({ timings, calls }) {
  return timings.map((timing, place) => {
    const model = timings.length > 1 && calls[place].body.model;
    return html`<dl class="timing" aria-label=${model ? `Timing of ${model}` : "Timing"}>
      ${model && html`<div><dt>model</dt><dd>${model}</dd></div>`}
      ${STEPS.map(([step, name]) => timing[step] !== undefined &&
        html`<div key=${step}><dt>${name}</dt><dd>${milliseconds(timing[step])}</dd></div>`)}
      <div><dt>in all, from this page</dt><dd>${milliseconds(timing.total)}</dd></div>
    </dl>`;
  });
}

const LANGUAGES = { curl, Python: python };

function Request({ calls }) {
  const { key } = useContext(Service);
  const [name, setName] = useState("curl");
  const text = calls.map((each) => LANGUAGES[name](each, Boolean(key))).join("\n");
  return html`<details class="request">
    <summary>This request as curl or Python</summary>
    <div class="bar-of-buttons">
      ${Object.keys(LANGUAGES).map((each) => html`<button type="button" key=${each} class="quiet" aria-pressed=${each === name ? "true" : "false"}
        onClick=${() => setName(each)}>${each}</button>`)}
      <${CopyButton} text=${text} label=${`Copy the request as ${name}`} />
    </div>
    <pre tabindex="0" aria-label=${`The request as ${name}`}><code>${text}</code></pre>
  </details>`;
}
