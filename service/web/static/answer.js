// The answers to the requests of a view: sent once the input has settled, aborted when the input changes.

import { createContext, useContext, useEffect, useRef, useState } from "./hooks.js";
import { call } from "./api.js";

// {models, ready, key, onProblem}: the served models, and the API key of the caller.
export const Service = createContext(null);

const SETTLED = 300; // milliseconds without a change of the input
const ATTEMPTS = 6; // after which only the reader tries again

const NOTHING = { results: null, timings: [], calls: [], problem: null, retryIn: null };

// The value, once neither it nor the input that it was made of has changed for a while: a space at the end of a text
// changes no request, but the reader is still typing.
function useSettled(value, input) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    if (value === settled) return undefined;
    const timer = setTimeout(() => setSettled(value), SETTLED);
    return () => clearTimeout(timer);
  }, [value, input]);
  return settled;
}

// `calls`: [{path, body}], all of one input; an empty list sends nothing. Returns the newest answers and the state of
// those under way: {results, timings, calls, problem, retryIn, waiting, retry}.
export function useAnswers(calls, input) {
  const { key, onProblem } = useContext(Service);
  const [state, setState] = useState(NOTHING);
  const [attempt, setAttempt] = useState(0);
  const failures = useRef(0);
  const wanted = JSON.stringify(calls);
  const settled = useSettled(wanted, input);
  const answered = useRef(null);

  useEffect(() => {
    const request = `${settled} ${attempt} ${key}`;
    const calls = JSON.parse(settled);
    if (!calls.length || answered.current === request) return undefined;
    const controller = new AbortController();
    let again;
    const send = async () => {
      try {
        const found = await Promise.all(calls.map(({ path, body }) => call(path, body, controller.signal)));
        if (controller.signal.aborted) return;
        failures.current = 0;
        answered.current = request;
        setState({ ...NOTHING, calls, results: found.map((each) => each.body), timings: found.map((each) => each.timing) });
      } catch (problem) {
        if (controller.signal.aborted) return;
        controller.abort(); // the other call of a comparison
        answered.current = request;
        onProblem(problem);
        const retryIn = waitBefore(problem, failures.current++);
        if (retryIn !== null) again = setTimeout(() => setAttempt((count) => count + 1), retryIn * 1000);
        setState({ ...NOTHING, calls, problem, retryIn });
      }
    };
    send();
    return () => {
      clearTimeout(again);
      controller.abort();
    };
  }, [settled, attempt, key]);

  const waiting = calls.length > 0 && answered.current !== `${wanted} ${attempt} ${key}`;
  const retry = () => setAttempt((count) => count + 1);
  return { ...(calls.length ? state : NOTHING), waiting, retry };
}

// Seconds until a call is sent again: as the server says, and longer each time; null where it is not.
function waitBefore(problem, failures) {
  if (problem.retryAfter == null || failures >= ATTEMPTS) return null;
  return Math.max(problem.retryAfter, 2 ** failures / 2);
}
