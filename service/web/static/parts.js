// Controls and small pieces that the views share.

import { html, useEffect, useId, useRef, useState } from "./hooks.js";

export function TextArea({ label, value, onInput, rows = 3, lang, hint }) {
  const id = useId();
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <textarea id=${id} rows=${rows} lang=${lang} value=${value} spellcheck="false" aria-describedby=${hint ? `${id}-hint` : undefined}
      onInput=${(event) => onInput(event.target.value)}></textarea>
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
  </div>`;
}

// An image of the reader's own; `onChange` gets its base64.
export function ImageFile({ onChange }) {
  const id = useId();
  const read = async (event) => {
    const [file] = event.target.files;
    const bytes = file ? new Uint8Array(await file.arrayBuffer()) : [];
    let text = "";
    for (const byte of bytes) text += String.fromCharCode(byte);
    onChange(btoa(text));
  };
  return html`<div class="field"><label for=${id}>Image, PNG or JPEG</label><input id=${id} type="file" accept="image/png,image/jpeg" onChange=${read} /></div>`;
}

export function Select({ label, value, options, onChange }) {
  const id = useId();
  return html`<div class="control">
    <label for=${id}>${label}</label>
    <select id=${id} value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([each, text]) => html`<option key=${each} value=${each}>${text}</option>`)}
    </select>
  </div>`;
}

export function NumberField({ label, value, min, max, step = 1, onChange }) {
  const id = useId();
  const change = (event) => {
    const found = Number(event.target.value);
    if (event.target.value && event.target.validity.valid) onChange(found);
  };
  return html`<div class="control">
    <label for=${id}>${label}</label>
    <input id=${id} type="number" value=${value} min=${min} max=${max} step=${step} onInput=${change} />
  </div>`;
}

// The model of a view: a choice where several serve it.
export function ModelSelect({ models, value, onChange, label = "Model", none }) {
  const options = models.map((model) => [modelId(model), modelId(model)]);
  if (none) options.unshift(["", none]);
  if (options.length < 2) return null;
  return html`<${Select} label=${label} value=${value} options=${options} onChange=${onChange} />`;
}

// The lines of a text that are not blank.
export const lines = (text) => text.split("\n").filter((line) => line.trim());

export const modelId = (model) => `${model.name}:${model.version}`;

// The chosen model: by its name, else the first one.
export const chosen = (models, id) => models.find((model) => modelId(model) === id) ?? models[0];

export function Examples({ texts, onPick, lang }) {
  return html`<ul class="examples" aria-label="Examples" lang=${lang}>
    ${texts.map((text) => html`<li key=${text}><button type="button" class="chip" onClick=${() => onPick(text)}>
      ${text.split("\n")[0]}${text.includes("\n") ? " …" : ""}</button></li>`)}
  </ul>`;
}

export function CopyButton({ text, label }) {
  const [said, setSaid] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSaid(""), 2000);
    return () => clearTimeout(timer);
  }, [said]);
  // Browsers offer the clipboard to pages of https and of this machine only.
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid("Copied");
    } catch {
      setSaid("Not allowed");
    }
  };
  return html`<button type="button" class="quiet" disabled=${!text} aria-label=${label} onClick=${copy}>${said || "Copy"}</button>`;
}

// A bar of a share of the widest one; the number that it shows stands next to it.
export const Bar = ({ share, mark }) => html`<span class="track" aria-hidden="true">
  <span class="bar" style=${{ inlineSize: `${100 * Math.min(share, 1)}%` }}></span>
  ${mark !== undefined && html`<span class="mark" style=${{ insetInlineStart: `${100 * mark}%` }}></span>`}
</span>`;

// A table of bars: {name, share, value} each.
export const Bars = ({ names, rows }) => html`<table class="bars">
  <${Heads} names=${names} />
  <tbody>${rows.map(({ name, share, value }, place) => html`<tr key=${place}><th scope="row">${name}</th>
    <td class="wide"><${Bar} share=${share} /></td><td class="number">${value}</td></tr>`)}</tbody>
</table>`;

// Column headings of a table whose columns explain themselves to the eye.
export const Heads = ({ names }) => html`<thead><tr>
  ${names.map((name) => html`<th scope="col" key=${name}><span class="unseen">${name}</span></th>`)}
</tr></thead>`;

// A row of buttons of which one is in the tab order; the arrow keys move between them.
export function useArrowKeys(count) {
  const [current, setCurrent] = useState(0);
  const row = useRef(null);
  const at = Math.min(current, count - 1);
  const move = (event) => {
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: count - 1 };
    const to = moves[event.key];
    if (to === undefined || to < 0 || to >= count) return;
    event.preventDefault();
    setCurrent(to);
    row.current.querySelectorAll("button")[to].focus();
  };
  return { current: at, setCurrent, row, move };
}
