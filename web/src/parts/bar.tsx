/** A bar of a share in [0, 1]; the label is for those who cannot see it. */
export function Bar({
  share,
  label,
  tone = "c0",
  mark,
}: {
  share: number;
  label: string;
  tone?: string;
  mark?: number;
}) {
  const width = `${(100 * Math.max(0, Math.min(1, Number.isFinite(share) ? share : 0))).toFixed(1)}%`;
  return (
    <span class={`bar ${tone}`} title={label}>
      <span class="unseen">{label}</span>
      <i style={{ width }} />
      {mark !== undefined && <b style={{ left: `${100 * mark}%` }} />}
    </span>
  );
}

/** Numbers as shares of their range. */
export function shares(values: readonly number[]): number[] {
  const known = values.filter(Number.isFinite);
  const least = Math.min(...known);
  const width = Math.max(...known) - least;
  // The smallest is still visible: an empty bar would look like no measurement.
  return values.map((value) =>
    Number.isFinite(value) ? (width ? 0.04 + (0.96 * (value - least)) / width : 0.5) : 0,
  );
}
