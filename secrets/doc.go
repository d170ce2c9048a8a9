// Package secrets resolves the references to secrets in a task, and masks secrets in
// the text that leaves a task.
//
// A [Set] holds secret values. A [Masker] is a writer that replaces them on the way
// to another writer. [Set.Mask] replaces them in a complete text:
//
//	set := secrets.NewSet(secrets.Config{}, token)
//	out := secrets.NewMasker(os.Stdout, set)
//	fmt.Fprintln(out, "the token is", token) // the token is ******
//	err := out.Close()
//
// To read the code, start at resolve.go for references. For masking, start at
// masker.go: a note there explains the algorithm.
//
// # References
//
// A [Resolver] replaces expressions in the strings of a task's payload (rules S1 and
// S2):
//
//   - ${{secrets.<id>}} becomes the value of the task's own secret with that id.
//   - ${{secrets.<URL>}}, such as ${{secrets.vault://kv/app#password}}, becomes the
//     value that the [Provider] for the URL's scheme fetches. [Env] and [File] are
//     providers; the sub-packages have others and document their URLs.
//   - <{ text | getAsBase64 }> becomes the base64 of the text. References and
//     templates in the text are replaced first. White space and one pair of double
//     quotes around the text are removed. The function may be applied several times.
//   - ${{secrets.}} becomes the empty text. It is the escape: a program that inserts
//     data into a payload writes it into each expression of the data, after the first
//     character. So $${{secrets.}}{{secrets.x}} becomes the data ${{secrets.x}}. Data
//     inside a template needs it in "}>" and in the name of the function too.
//
// A reference has no spaces. So the resolver does not change "${{ secrets.TOKEN }}",
// which other systems use in their workflow files. Without a function before the
// end, "<{" and "}>" are data, as in the TypeScript code useState<{ a: string }>().
// An id or URL contains no white space and none of the characters "'`\{}<>. A URL has
// them percent-encoded.
//
// The resolver works on the JSON text of the payload. All text that it does not
// replace stays byte for byte, numbers included. It finds an expression with any
// JSON escapes, because some encoders write < as \u003c. An expression must not
// extend over several strings or be part of an object's key; both are errors. The
// resolver inserts a value with JSON escapes. From then on the value is data: a
// reference, a quote or the end of a template in it has no meaning. A value that is
// not UTF-8 can be used with getAsBase64 only.
//
// If a reference cannot be resolved, the error names the reference and shows no
// value. These limits are errors too:
//
//   - a value of more than 64 KiB, or 128 KiB made from a secret by a template;
//   - more than 16 templates or functions inside each other;
//   - more than 256 different provider references in a task;
//   - a result larger than ResolverConfig.MaxSize.
//
// The resolver adds each value, and each text that a template makes of it, to the
// task's Set before it returns them.
//
// Put values into the environment of a step, and use the variable in its command. If
// a script contains a value, the driver does not put the script on a command line.
// If an argument of a program contains a value, the step fails. If a script passes a
// value to a program as an argument, every process on the machine can read it.
//
// # Masked text
//
// A byte is masked if it lies in an occurrence of a form of a value. Each longest run
// of masked bytes becomes one [Replacement]. So occurrences that overlap or touch
// become one, the longest match wins, and the output shows neither the length nor
// the number of values. The split of the text into writes makes no difference
// (rule S4).
//
// The forms of a value are (rule S3):
//
//   - the value without newlines at its end, with all line ends as LF, CRLF, CR, or
//     CR CR LF, which a terminal makes of CRLF;
//   - each line of a multi-line value without surrounding white space, if it has at
//     least Config.MinLine characters;
//   - its base64 in the standard and the URL alphabet, with and without padding, and at
//     each of the three alignments in a longer encoded text; each line of it that is
//     wrapped at 64 or 76 columns;
//   - its URL encodings: for a query, for a path, and as encodeURIComponent of
//     JavaScript, with hexadecimal digits in lower or upper case;
//   - its content as a JSON string, as Go, JavaScript, Python, PHP and .NET write it;
//   - its shell quotings, as scripts write them and as bash and dash trace commands
//     (set -x): in single quotes, in double quotes, with backslashes, and as $'...';
//   - its content in HTML, XML, CSV and quoted-printable, and the text that Python
//     prints for a string or bytes (repr, ascii);
//   - its hexadecimal digits in lower and upper case, and each line of xxd -p, if it has
//     at least four bytes. Fewer digits occur in checksums by accident.
//
// Tools wrap long encodings. So a line break within a form is ignored, if the form has
// at least seven bytes: LF or CRLF, with a "=" before it as in quoted-printable, and an
// indentation of at most 32 spaces and tabs after it. An empty line ends a form. If
// less than four bytes of a form precede the first break, they stay visible; otherwise
// the ends of ordinary lines would be held back.
//
// The masker also reads dumps, as xxd, od and hexdump write them. A row of a dump is a
// line that begins with an offset and cells, or with cells alone. A cell has
// hexadecimal digits, in groups of at most 32 bytes after the offset of xxd and
// otherwise of 1, 2, 4 or 8 bytes, or with 0x before them, as xxd -i writes them; 1, 2,
// 4 or 8 bytes as an octal number; the bits of a byte, as xxd -b writes them; or one
// character, as od -c and hexdump -c write it. Words may have their bytes in the
// opposite order. If the bytes of consecutive rows contain a form, the text is masked
// from the cell of its first byte to the end of the last row, with the column of
// characters.
//
// # Text that is not masked
//
// The masker ignores values shorter than Config.MinLength, and values of white space
// only. It does not find a value that a program changes in another way: cut up,
// reversed, in another case, compressed, encrypted, with two encodings, with colour
// codes in the middle, or with a prefix in each line of a wrapped encoding or of a
// dump. It does not find hexadecimal digits with separators that are no dump, and
// dumps in decimal numbers, or with an asterisk in place of equal rows. Of od -a it does not read names such as sp. If a value begins or ends
// inside a base64 character, that character stays visible; it contains at most four
// bits of the value. In a longer base64 text, a value stays visible if less than six
// characters depend on it alone, or if a line break falls into less than seven.
//
// # Costs
//
// A Masker searches for all forms of all values at once. In ordinary text it reads
// every eighth to sixteenth byte, whatever the number of values is, and it does not
// copy text that has no secret. Short values cost more: a form of less than 15 bytes
// adds a search that reads every fourth byte, less than 7 bytes every second, and
// less than 3 bytes every byte. If a text resembles secrets all the time, an
// automaton searches it in at most two steps for each byte on average. The automaton
// is built when it is first needed and takes about 25 bytes of memory for each byte
// of a form. A write allocates nothing in the steady state. docs/benchmarks.md has
// figures.
package secrets
