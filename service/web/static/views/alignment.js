// Words of a sentence and of its translation: those that stand for each other are marked together, by pointer or focus.

import { html, useState } from "../hooks.js";
import { useArrowKeys } from "../parts.js";

// A text as words at spans of code points and what stands between them: [{text, place}], place undefined between.
export function pieces(text, spans) {
  const letters = [...text];
  const found = [];
  let end = 0;
  spans.forEach(([start, stop], place) => {
    found.push({ text: letters.slice(end, start).join("") }, { text: letters.slice(start, stop).join(""), place });
    end = stop;
  });
  return [...found, { text: letters.slice(end).join("") }].filter((each) => each.text);
}

// The spans of one side, in order, each once; none that overlaps one before it.
export function spansOf(links, side) {
  const spans = new Map(links.map((link) => [link[side].join(), link[side]]));
  let end = 0;
  return [...spans.values()].sort((a, b) => a[0] - b[0]).filter((span) => span[0] >= end && (end = span[1]));
}

// `links`: those of an answer of the service, {source, target} each.
export function Linked({ text, translation, links, codes }) {
  const [marked, setMarked] = useState(null); // {side, span} of the word that is pointed at
  const has = (link) => marked !== null && link[marked.side].join() === marked.span.join();
  const row = (side, content, lang) => html`<${Row} content=${content} lang=${lang} label=${side === "source" ? "Words of the text" : "Words of the translation"}
    spans=${spansOf(links, side)} mark=${(span) => setMarked(span && { side, span })}
    marked=${(span) => links.some((link) => has(link) && link[side].join() === span.join())}
    partners=${(span) => partners(span, side)} />`;
  const partners = (span, side) => {
    const [other, content] = side === "source" ? ["target", translation] : ["source", text];
    const found = links.filter((link) => link[side].join() === span.join()).map((link) => link[other]);
    return spansOf(found.map((each) => ({ [other]: each })), other).map(([start, end]) => [...content].slice(start, end).join("")).join(" ");
  };
  return html`${row("source", text, codes[0])}${row("target", translation, codes[1])}`;
}

function Row({ content, lang, label, spans, mark, marked, partners }) {
  const { current, setCurrent, row, move } = useArrowKeys(spans.length);
  return html`<p class="linked" role="group" aria-label=${label} lang=${lang} ref=${row} onKeyDown=${move}>
    ${pieces(content, spans).map(({ text, place }, index) => place === undefined
      ? text
      : html`<button type="button" key=${index} class="link" data-marked=${marked(spans[place]) ? "true" : undefined}
          tabindex=${place === current ? 0 : -1} aria-label=${`${text}: ${partners(spans[place])}`}
          onFocus=${() => { setCurrent(place); mark(spans[place]); }} onBlur=${() => mark(null)}
          onPointerEnter=${() => mark(spans[place])} onPointerLeave=${() => mark(null)}>${text}</button>`)}
  </p>`;
}
