// Tensors of the trace on show: fetched when first looked at, then kept.
import { useEffect, useState } from "preact/hooks";
import * as api from "page/api.js";
import { look } from "page/store.js";

/** Numbers with a shape. `at(i, j, …)` is one of them, `row(i, j, …)` the last dimension. */
export class Tensor {
  constructor(shape, data) {
    this.shape = shape;
    this.data = data;
  }

  offset(...place) {
    let offset = 0;
    for (let axis = 0; axis < this.shape.length; axis++) {
      offset = offset * this.shape[axis] + (place[axis] ?? 0);
    }
    return offset;
  }

  at(...place) {
    return this.data[this.offset(...place)];
  }

  row(...place) {
    const start = this.offset(...place);
    return this.data.subarray(start, start + this.shape[this.shape.length - 1]);
  }

  /** The matrix under the first indices: an array of rows. */
  rows(...place) {
    const count = this.shape[this.shape.length - 2];
    return Array.from({ length: count }, (_, i) => this.row(...place, i));
  }
}

const kept = new WeakMap();

/** A promise of a tensor of a trace, or of one row of it: `logits[3]`. */
export function fetched(trace, path) {
  if (!kept.has(trace)) kept.set(trace, new Map());
  const tensors = kept.get(trace);
  if (!tensors.has(path)) {
    const [, name, row] = path.match(/^([^[]+)(?:\[(\d+)\])?$/);
    const whole = trace.shapes[name];
    const shape = row === undefined ? whole : whole.slice(1);
    const size = shape.reduce((a, b) => a * b, 1);
    const made = api
      .tensor(trace.id, name, row === undefined ? null : Number(row), size)
      .then((data) => new Tensor(shape, data));
    made.catch(() => tensors.delete(path));
    tensors.set(path, made);
  }
  return tensors.get(path);
}

/** What went wrong with the numbers on show, if something did. */
function tell(error) {
  if (look.value.error !== error) look.value = { ...look.value, error };
}

/** Tensors of the trace on show, by name; null until all are there. */
export function useTensors(...paths) {
  const trace = look.value.trace;
  const [found, setFound] = useState(null);
  const names = paths.join(" ");
  useEffect(() => {
    let wanted = true;
    if (trace) {
      Promise.all(paths.map((path) => fetched(trace, path))).then(
        (tensors) => wanted && (tell(""), setFound({ trace, names, tensors })),
        (error) => wanted && (tell(error.message), setFound(null)),
      );
    }
    return () => {
      wanted = false;
    };
  }, [trace, names]);
  return found && found.trace === trace && found.names === names ? found.tensors : null;
}
