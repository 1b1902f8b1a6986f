// A file that the service translates in the background: its progress, and the translated file.

import { html, useContext, useEffect, useId, useRef, useState } from "../hooks.js";
import { Service } from "../answer.js";
import { call, send } from "../api.js";

const POLL = 500; // milliseconds between two questions how far the job is
const ENDINGS = ".txt,.html,.htm,.md,.srt,.vtt,.po,.pot,.xlf,.xliff,.json,.csv,.tsv,.docx";

const path = (job) => `v1/documents/${job.id}`;
const headers = (job) => ({ "X-Document-Key": job.key });

// `fields`: model or languages of the request. A job goes on while they change, but not once the view is left.
export function DocumentForm({ fields }) {
  const { onProblem } = useContext(Service);
  const id = useId();
  const [job, setJob] = useState(null); // {id, key, name, status, percent}
  const [problem, setProblem] = useState("");
  const [over, setOver] = useState(false);
  const running = useRef(null); // the job that is asked after

  const failed = (error) => {
    onProblem(error);
    setProblem(error.detail);
  };
  const start = async (file) => {
    if (!file || job?.busy) return;
    setProblem("");
    setJob({ name: file.name, status: "sending", percent: 0, busy: true });
    const body = new FormData();
    for (const [name, value] of Object.entries(fields)) body.append(name, value);
    body.append("file", file);
    try {
      const accepted = await (await send("v1/documents", { method: "POST", body })).json();
      watch({ ...accepted, name: file.name });
    } catch (error) {
      setJob(null);
      failed(error);
    }
  };
  const watch = async (started) => {
    running.current = started;
    while (running.current === started) {
      try {
        const found = (await call(path(started), undefined, undefined, headers(started))).body;
        if (running.current !== started) return;
        const busy = !["done", "error"].includes(found.status);
        setJob({ ...started, status: found.status, percent: found.percent, busy });
        if (found.status === "error") setProblem(found.error);
        if (!busy) return;
      } catch (error) {
        if (error.retryAfter === null) {
          setJob(null);
          failed(error);
          return;
        }
      }
      await new Promise((done) => setTimeout(done, POLL));
    }
  };
  const remove = async () => {
    const last = running.current;
    running.current = null;
    setJob(null);
    setProblem("");
    if (last) await send(path(last), { method: "DELETE", headers: headers(last) }).catch(failed);
  };
  useEffect(() => () => void (running.current = null), []);
  const save = async () => {
    try {
      const response = await send(`${path(job)}/result`, { headers: headers(job) });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await response.blob());
      link.download = job.name.replace(/(\.[^.]*)?$/, "-translated$1");
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), POLL);
    } catch (error) {
      failed(error);
    }
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    start(event.dataTransfer.files[0]);
  };
  const hover = (event) => {
    event.preventDefault();
    setOver(true);
  };
  const choose = (event) => {
    start(event.target.files[0]);
    event.target.value = "";
  };
  return html`<div class=${over ? "document over" : "document"} onDragOver=${hover} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <div class="control"><label for=${id}>Translate a file</label>
      <input id=${id} type="file" accept=${ENDINGS} disabled=${job?.busy} onChange=${choose} aria-describedby=${`${id}-hint`} /></div>
    <p class="hint" id=${`${id}-hint`}>Or drop it here: Word, HTML, Markdown, subtitles, PO, XLIFF, JSON, CSV or text.</p>
    ${job && html`<div class="control">
      <progress max="100" value=${job.percent} aria-label=${`Progress of ${job.name}`}></progress>
      <span aria-live="polite">${job.name}: ${job.status}</span>
      ${job.status === "done" && html`<button type="button" onClick=${save}>Download</button>`}
      <button type="button" class="quiet" onClick=${remove}>${job.busy ? "Cancel" : "Delete"}</button>
    </div>`}
    ${problem && html`<p class="warning" role="alert">${problem}</p>`}
  </div>`;
}
