// Which head links two words of the source most: found in the data, not known beforehand. Pure.

const PRONOUNS = new Set([
  "it",
  "he",
  "she",
  "they",
  "him",
  "her",
  "them",
  "il",
  "elle",
  "ils",
  "elles",
  "lui",
  "er",
  "sie",
  "es",
]);

/** The words of the source, each with the places of its pieces; the tag and the end symbol are none. */
export function words(trace) {
  const found = [];
  const tokens = trace.tokens[0];
  tokens.forEach(([, text], place) => {
    if (place === tokens.length - 1 || /^<2.*>$|^>>.*<<$/.test(text)) return;
    const begins =
      text.startsWith("▁") ||
      !found.length ||
      /^[^\p{L}\p{N}<]/u.test(text) ||
      /[^\p{L}\p{N}]$/u.test(found.at(-1).text);
    const letters = text.replaceAll("▁", "");
    if (begins) found.push({ text: letters, places: [place] });
    else (found.at(-1).places.push(place), (found.at(-1).text += letters));
  });
  return found.filter(({ text }) => /[\p{L}\p{N}]/u.test(text));
}

/** The word to ask about (a pronoun if there is one, else the longest), and the words it may be linked to. */
export function question(trace) {
  const all = words(trace);
  const pronoun = all.findLastIndex(({ text }) => PRONOUNS.has(text.toLowerCase()));
  if (pronoun > 0) {
    const noun = all.findLastIndex(({ text }, place) => place < pronoun && text.toLowerCase() === "animal");
    return { from: all[pronoun], to: noun >= 0 ? [all[noun]] : all.slice(0, pronoun), pronoun: true };
  }
  const from = all.reduce((one, other) => (other.text.length > one.text.length ? other : one), all[0]);
  return { from, to: all.filter((word) => word !== from), pronoun: false };
}

/**
 * The strongest link of the word: { layer, head, row, column, weight, from, to, even }, or null. Pure.
 * weights: a tensor for each layer.
 */
export function strongest(trace, weights) {
  const { from, to } = question(trace);
  if (!from || !to.length) return null;
  const row = from.places.at(-1);
  let best = null;
  weights.forEach((tensor, layer) => {
    for (let head = 0; head < tensor.shape[0]; head++) {
      for (const word of to) {
        const weight = word.places.reduce((sum, place) => sum + tensor.at(head, row, place), 0);
        if (!best || weight > best.weight) best = { layer, head, row, word, weight };
      }
    }
  });
  const values = weights[best.layer];
  const column = best.word.places.reduce((one, other) =>
    values.at(best.head, row, other) > values.at(best.head, row, one) ? other : one,
  );
  const even = best.word.places.length / trace.tokens[0].length;
  return {
    ...best,
    column,
    from: from.text,
    to: best.word.text,
    pieces: best.word.places.length,
    even,
    heads: weights.length * values.shape[0],
  };
}
