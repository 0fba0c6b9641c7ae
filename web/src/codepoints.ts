// The API counts code points, JavaScript UTF-16 units; they differ where a text has characters
// beyond the basic plane.

const SURROGATE = /[\uD800-\uDFFF]/;

/** How many code points a text has. */
export const pointsOf = (text: string): number =>
  SURROGATE.test(text) ? Array.from(text).length : text.length;

/** A text that is cut by code points; `offset` is the place of its first one in the whole. */
export class Text {
  readonly length: number;
  private readonly points: string[] | null;

  constructor(
    private readonly text: string,
    readonly offset = 0,
  ) {
    this.points = SURROGATE.test(text) ? Array.from(text) : null;
    this.length = (this.points ?? text).length;
  }

  get end(): number {
    return this.offset + this.length;
  }

  /** The characters of `[start, end)` of the whole, as far as they are loaded. */
  slice(start: number, end: number): string {
    const from = Math.max(0, start - this.offset);
    const to = Math.max(from, Math.min(this.length, end - this.offset));
    return this.points ? this.points.slice(from, to).join("") : this.text.slice(from, to);
  }
}
