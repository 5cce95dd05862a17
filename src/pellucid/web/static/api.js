// Data of the page: from the server, or from a trace inside the file itself.

const carried = document.getElementById("carried");

export const offline = carried ? JSON.parse(carried.textContent) : null;

/** A refused request, with a message for people. */
export class RequestError extends Error {}

const KEY = "pellucid key";

async function asked(path, body, signal) {
  const key = offline ? null : sessionStorage.getItem(KEY);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const options = body
    ? {
        method: "POST",
        headers: { ...headers, "Content-Type": "application/json" },
        body: JSON.stringify(body),
        signal,
      }
    : { headers, signal };
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError("The server does not respond. Is it still running?");
  }
  if ((response.status === 401 && key === null) || (response.status === 403 && key)) {
    const given = prompt("This server requires an API key:");
    sessionStorage.setItem(KEY, given ?? "");
    if (given) return asked(path, body, signal);
  }
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new RequestError(told.error ?? `The server refused the request (${response.status}).`);
  }
  return response;
}

const json = async (...call) => (await asked(...call)).json();

export const about = () => (offline ? Promise.resolve(offline.about) : json("about"));
export const translate = (body, signal) => json("translate", body, signal);
export const alternatives = (body, signal) => json("alternatives", body, signal);
export const trace = (body, signal) => json("trace", body, signal);

export const masks = (body, signal) => json("masks", body, signal);

const numbers = async (path) => new Float32Array(await (await asked(path)).arrayBuffer());

/** Sinusoidal positions, sines and cosines in turn, as a flat Float32Array. */
export const positions = (length, width) => numbers(`positions?length=${length}&width=${width}`);

/** The output projection W_O of a layer's attention, a row for each output number. */
export const outputProjection = (kind, layer) => numbers(`output_projection?kind=${kind}&layer=${layer}`);

/** A tensor by name, as a flat Float32Array; with a row, that row of its first dimension. */
export async function tensor(id, path, row = null, size = 0) {
  if (offline) {
    if (!(path in offline.tensors)) throw new RequestError("These numbers are not in this file.");
    const carries = offline.tensors[path];
    const whole = decoded(carries.startsWith("=") ? offline.tensors[carries.slice(1)] : carries);
    return row === null ? whole : whole.subarray(row * size, (row + 1) * size);
  }
  const part = row === null ? "" : `&row=${row}`;
  return numbers(`trace/${encodeURIComponent(id)}/tensor?path=${encodeURIComponent(path)}${part}`);
}

function decoded(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}
