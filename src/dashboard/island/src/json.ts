// Finds the first error in the JSON text of an entity, or of an array of entities. The parser does not convert values.

export interface JsonError {
  line: number;
  column: number;
  text: string;
}

/** The maximum nesting depth of an entity, as on the server. */
const MAX_LEVELS = 128;

class Reader {
  at = 0;

  constructor(private readonly text: string) {}

  fail(text: string): never {
    throw { at: this.at, text };
  }

  blanks(): void {
    while (/[ \t\n\r]/.test(this.text.charAt(this.at))) this.at += 1;
  }

  /** The next character that is not white space. */
  next(): string {
    this.blanks();
    return this.text.charAt(this.at);
  }

  value(level: number): void {
    const first = this.next();
    if ((first === "{" || first === "[") && level > MAX_LEVELS) this.fail(`more than ${MAX_LEVELS} nesting levels`);
    if (first === "{") this.list("}", () => this.member(level));
    else if (first === "[") this.list("]", () => this.value(level + 1));
    else if (first === '"') this.string();
    else this.word(first);
  }

  private list(end: string, item: () => void): void {
    this.at += 1;
    if (this.next() === end) {
      this.at += 1;
      return;
    }
    for (;;) {
      item();
      const after = this.next();
      if (after !== "," && after !== end) this.fail(after ? `“,” or “${end}” is missing` : `“${end}” is missing`);
      this.at += 1;
      if (after === end) return;
    }
  }

  private member(level: number): void {
    if (this.next() !== '"') this.fail("expected a key in double quotes");
    this.string();
    if (this.next() !== ":") this.fail("“:” is missing");
    this.at += 1;
    this.value(level + 1);
  }

  private string(): void {
    this.at += 1;
    for (;;) {
      const character = this.text.charAt(this.at);
      if (character === "") this.fail("the string is not closed");
      if (character < " ") this.fail("strings cannot contain line breaks or control characters: write \\n");
      if (character === '"') break;
      if (character === "\\") {
        const escape = /^\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/.exec(this.text.slice(this.at, this.at + 6));
        if (!escape) this.fail("invalid escape sequence");
        // Half of a surrogate pair is not a character.
        if (/^\\u[dD][89abAB]/.test(escape[0])) {
          const pair = /^\\u[0-9a-fA-F]{4}\\u[dD][c-fC-F][0-9a-fA-F]{2}/.test(this.text.slice(this.at, this.at + 12));
          if (!pair) this.fail("unpaired surrogate");
          this.at += 6;
        } else if (/^\\u[dD][c-fC-F]/.test(escape[0])) this.fail("unpaired surrogate");
        this.at += escape[0].length;
      } else this.at += 1;
    }
    this.at += 1;
  }

  private word(first: string): void {
    const pattern = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+-])|(?:true|false|null)(?!\w)/y;
    pattern.lastIndex = this.at;
    const word = pattern.exec(this.text);
    if (!word) this.fail(first ? "this is not a JSON value" : "a value is missing");
    this.at += word[0].length;
  }

  /** Parses an entity, or an array of entities if `several` is true. */
  entity(several: boolean): void {
    const first = this.next();
    if (several && first === "[") return this.list("]", () => this.entity(false));
    if (first !== "{") this.fail("an entity must be an object: “{” is missing");
    this.value(1);
  }

  end(): void {
    if (this.next() !== "") this.fail("unexpected text after the value");
  }
}

/** Returns the first error of a text; null for an entity, or for an array of entities if `several` is true. */
export function jsonError(text: string, several: boolean): JsonError | null {
  const reader = new Reader(text);
  try {
    reader.entity(several);
    reader.end();
    return null;
  } catch (error) {
    const { at, text: why } = error as { at: number; text: string };
    const before = text.slice(0, at).split("\n");
    return { line: before.length, column: [...(before.at(-1) ?? "")].length + 1, text: why };
  }
}
