// A request as commands to copy. A key is named, never shown.

import { address } from "./api.js";

const VARIABLE = "SOFTSERVE_API_KEY";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curl({ path, body }, withKey) {
  const lines = [`curl ${address(path)}`, "-H 'Content-Type: application/json'"];
  if (withKey) lines.push(`-H "Authorization: Bearer $${VARIABLE}"`);
  lines.push(`-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

export function python({ path, body }, withKey) {
  const key = withKey ? `    headers={"Authorization": "Bearer " + os.environ["${VARIABLE}"]},\n` : "";
  return `${withKey ? "import os\n\n" : ""}import httpx2

response = httpx2.post(
    ${JSON.stringify(address(path))},
    json=${literal(body)},
${key}    timeout=30,
)
response.raise_for_status()
print(response.json())
`;
}

// A value of JSON as Python writes it.
function literal(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
}
