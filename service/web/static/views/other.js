// Every operation without a view of its own: a form made of the API's description, and the results as tables.

import { html, useEffect, useId, useState } from "../hooks.js";
import { useAnswers } from "../answer.js";
import { call } from "../api.js";
import { fixed } from "../format.js";
import { Frame } from "../frame.js";
import { ImageFile, ModelSelect, Select, TextArea, chosen, modelId } from "../parts.js";

const SHOWN = 12; // values of a list

export function View({ fields, update, models, others }) {
  const { description, problem } = useDescription();
  const name = others.includes(fields.operation) ? fields.operation : others[0];
  if (!description) return html`<p role="status" class="status">${problem ?? "…"}</p>`;
  const form = formOf(description, name);
  if (!form) return html`<p role="status" class="status">The API's description has no “${name}”.</p>`;
  const pick = html`<${Select} label="Operation" value=${name} options=${others.map((each) => [each, spelled(each)])}
    onChange=${(operation) => update({ operation, text: null, params: "{}", model: "" })} />`;
  return html`<${Form} key=${name} form=${form} pick=${pick} fields=${fields} update=${update}
    models=${models.filter((each) => each.operations.includes(name))} />`;
}

function Form({ form, pick, fields, update, models }) {
  const model = chosen(models, fields.model);
  const [image, setImage] = useState("");
  const given = readObject(fields.params);
  const images = model.reads === "image";
  const input = images ? image : fields.text ?? form.example;
  const params = Object.fromEntries(form.parameters.filter(({ name }) => name in given).map(({ name }) => [name, given[name]]));
  const calls = input.trim() ? [{ path: form.path.slice(1), body: { [images ? "image" : form.input]: input, ...params, model: modelId(model) } }] : [];
  const answers = useAnswers(calls, input);
  const change = (name, value) => {
    const changed = { ...params, [name]: value };
    if (value === undefined) delete changed[name];
    update({ params: JSON.stringify(changed) });
  };
  return html`<div class="input">
      <p class="hint">${form.summary}</p>
      ${images
        ? html`<${ImageFile} onChange=${setImage} />`
        : html`<${TextArea} label=${spelled(form.input)} value=${input} onInput=${(text) => update({ text })} />`}
      <div class="controls">
        ${pick}
        ${form.parameters.map((each) => html`<${Parameter} key=${each.name} ...${each} value=${given[each.name] ?? each.preset} onChange=${(value) => change(each.name, value)} />`)}
        <${ModelSelect} models=${models} value=${modelId(model)} onChange=${(id) => update({ model: id })} />
      </div>
    </div>
    <${Frame} answers=${answers} summary=${() => "Answered."}>${([{ results }]) => html`<figure><${Value} value=${results[0]} /></figure>`}<//>`;
}

// A parameter of a request. Its empty value is undefined: the server's default.
function Parameter({ name, schema, value, about, onChange }) {
  const id = useId();
  const { type, enum: choices, minimum, maximum } = schema;
  const change = ({ target }) => {
    if (type === "boolean") onChange(target.checked);
    else if (!target.value) onChange(undefined);
    else if (target.validity.valid) onChange(type === "string" ? target.value : Number(target.value));
  };
  const field = choices
    ? html`<select id=${id} value=${value} onChange=${change}>${choices.map((each) => html`<option key=${each}>${each}</option>`)}</select>`
    : type === "boolean"
      ? html`<input id=${id} type="checkbox" checked=${value} onChange=${change} />`
      : html`<input id=${id} type=${type === "string" ? "text" : "number"} value=${value} min=${minimum} max=${maximum}
          step=${type === "integer" ? 1 : "any"} onInput=${change} />`;
  return html`<div class="control" title=${about}><label for=${id}>${spelled(name)}</label>${field}</div>`;
}

// A value of JSON: objects as tables of names and values, lists of objects as tables with a row for each.
function Value({ value }) {
  if (typeof value === "number") return Number.isInteger(value) ? value : fixed(value, 4);
  if (typeof value !== "object" || value === null) return String(value ?? "–");
  if (!Array.isArray(value)) return html`<table class="plain"><tbody>${Object.entries(value).map(([name, each]) => html`<tr key=${name}>
      <th scope="row">${spelled(name)}</th><td><${Value} value=${each} /></td></tr>`)}</tbody></table>`;
  const shown = value.slice(0, SHOWN);
  const more = value.length > shown.length && html`<span class="muted"> and ${value.length - shown.length} more</span>`;
  if (!shown.length || shown.some((each) => typeof each !== "object" || Array.isArray(each))) {
    return html`${shown.map((each, place) => html`${place > 0 && ", "}<${Value} value=${each} />`)}${more}`;
  }
  const columns = [...new Set(shown.flatMap((each) => Object.keys(each ?? {})))];
  return html`<table class="plain">
      <thead><tr>${columns.map((name) => html`<th scope="col" key=${name}>${spelled(name)}</th>`)}</tr></thead>
      <tbody>${shown.map((each, place) => html`<tr key=${place}>${columns.map((name) => html`<td key=${name}><${Value} value=${each?.[name]} /></td>`)}</tr>`)}</tbody>
    </table>${more}`;
}

const spelled = (name) => name.charAt(0).toUpperCase() + name.slice(1).replaceAll(/[-_]/g, " ");

function readObject(text) {
  try {
    return { ...JSON.parse(text) };
  } catch {
    return {}; // the address was edited
  }
}

function useDescription() {
  const [state, setState] = useState({ description: null });
  useEffect(() => {
    call("openapi.json").then(
      ({ body }) => setState({ description: body }),
      (problem) => setState({ description: null, problem: problem.detail }),
    );
  }, []);
  return state;
}

// The form of an operation: {path, summary, input, example, parameters}; null where the description has none.
export function formOf({ paths, components }, name) {
  const path = Object.keys(paths).find((each) => each.startsWith(`/v1/${name}`) && paths[each].post);
  const post = paths[path]?.post;
  const reference = post?.requestBody?.content["application/json"]?.schema.$ref;
  if (!reference) return null;
  const { properties, required, examples } = components.schemas[reference.split("/").at(-1)];
  const input = required?.[0] ?? Object.keys(properties)[0];
  const example = [examples?.[0]?.[input] ?? ""].flat()[0];
  const parameters = Object.entries(properties).flatMap(([name, property]) => {
    const schema = property.anyOf?.find((each) => each.type !== "null") ?? property;
    const simple = ["integer", "number", "boolean", "string"].includes(schema.type);
    const kept = simple && name !== input && name !== "model";
    return kept ? [{ name, schema, preset: property.default, about: property.description }] : [];
  });
  return { path, summary: post.description, input, example, parameters };
}
