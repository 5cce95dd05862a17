// The search of a trace as nodes, and its arithmetic: pure, apart from drawing.

export const DROPPED = 0;
export const KEPT = 1;
export const ENDED = 2;
export const FATES = ["pruned", "kept", "finished"];

/** The id of the end symbol, with which the source ends too. */
export const endOf = (trace) => trace.tokens[0].at(-1)[0];

/** The tokens of the answer, with the end symbol if it came. */
export function answered(trace) {
  const [tokens, , , , ended] = trace.hypotheses[0];
  return ended === "eos" ? [...tokens, endOf(trace)] : tokens;
}

/**
 * The rounds, each with its ways to go on, best first. A way knows the way it goes on from (`parent`, null for the
 * start), its tokens so far, and whether it is on the path of the answer (`best`).
 */
export function rounds(trace) {
  const answer = answered(trace);
  const given = answer.slice(0, (trace.beam[0]?.length ?? 1) - 1);
  let alive = [{ tokens: given, best: true, row: 0 }];
  return trace.beam.map(({ length, candidates }, round) => {
    const ways = candidates.map(([from, token, logProbability, sum, score, fate], row) => ({
      round,
      row,
      token,
      logProbability,
      sum,
      score,
      fate,
      length,
      text: trace.pieces[token],
      parent: round ? alive[from] : null,
      tokens: [...alive[from].tokens, token],
      best: alive[from].best && token === answer[length - 1],
    }));
    alive = ways.filter((way) => way.fate === KEPT);
    return { length, ways };
  });
}

/** Pieces as text: the mark of a space becomes one, and pieces that are bytes become what they spell. */
export function readable(pieces) {
  const joined = pieces
    .join("")
    .replace(/(?:<0x[0-9A-F]{2}>)+/g, (run) =>
      new TextDecoder().decode(Uint8Array.from(run.match(/[0-9A-F]{2}(?=>)/g), (byte) => parseInt(byte, 16))),
    );
  return joined.replaceAll("▁", " ").trim();
}

/** Tokens as text, without the end symbol. */
export const written = (trace, tokens) =>
  readable(tokens.filter((token) => token !== endOf(trace)).map((token) => trace.pieces[token] ?? ""));

/** The length penalty: what a sum is divided by. */
export function penalty({ length_normalization: kind, length_penalty: alpha }, length) {
  if (kind === "none") return 1;
  return kind === "gnmt" ? ((5 + length) / 6) ** alpha : Math.max(length, 1) ** alpha;
}

/** The same in words: the formula with its numbers. */
export function penaltyFormula({ length_normalization: kind, length_penalty: alpha }, length) {
  if (kind === "none") return "1";
  const power = alpha === 1 ? "" : ` to the power of ${alpha}`;
  return kind === "gnmt" ? `((5 + ${length}) / 6)${power}` : `${length}${power}`;
}

/** Which ended hypothesis would have won if sums were compared as they are. */
export function winnerBySum(hypotheses) {
  let best = 0;
  hypotheses.forEach(([, , sum], place) => {
    if (sum > hypotheses[best][2]) best = place;
  });
  return best;
}

/** What two lists of tokens have in common, in order: for each, whether each token is in it. */
export function common(one, other) {
  const longest = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = other.length - 1; j >= 0; j--) {
      longest[i][j] =
        one[i] === other[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const shared = [one.map(() => false), other.map(() => false)];
  for (let i = 0, j = 0; i < one.length && j < other.length;) {
    if (one[i] === other[j]) {
      shared[0][i++] = shared[1][j++] = true;
    } else if (longest[i + 1][j] >= longest[i][j + 1]) {
      i++;
    } else {
      j++;
    }
  }
  return shared;
}
