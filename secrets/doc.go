// Package secrets resolves what a task refers to as secrets, and keeps secrets
// out of whatever leaves a task as text.
//
// A Set knows the values. A Masker is a writer that replaces them on their way
// to another writer; Set.Mask does the same to a text that is there as a whole:
//
//	set := secrets.NewSet(secrets.Config{}, token)
//	out := secrets.NewMasker(os.Stdout, set)
//	fmt.Fprintln(out, "the token is", token) // the token is ******
//	err := out.Close()
//
// # References
//
// A Resolver replaces what the strings of a task's payload refer to (SPEC S1, S2):
//
//   - ${{secrets.<id>}}, the value of the task's own secret with that id;
//   - ${{secrets.<URL>}}, such as ${{secrets.vault://kv/app#password}}: the value
//     that the Provider of the URL's scheme fetches. The sub-packages have
//     providers, and say what their URLs look like;
//   - <{ text | getAsBase64 }>, the base64 of the text, whose references and
//     templates are replaced first; white space and one pair of double quotes
//     around the text do not belong to it. The function may stand several times.
//
// A reference has no spaces, so "${{ secrets.TOKEN }}" in the workflow file of
// another system stays as it is. "<{" and "}>" with no function before the end are
// data too, as in TypeScript's useState<{ a: string }>(). A name or a URL has
// neither white space nor any of "'`\{}<> in it; a URL has them percent-encoded.
//
// The payload is JSON, and its text is what is worked on: everything that is not
// replaced, numbers included, stays byte for byte. An expression is found however
// its string is escaped, as encoders that write < as \u003c require. It cannot
// reach from one string into another, nor be part of an object's key: that is an
// error. A value is inserted with JSON's escapes and is data from then on: nothing
// in it is looked at again, be it a reference, the end of a template or a quote.
// Bytes that are no UTF-8 can only be used with getAsBase64.
//
// What cannot be resolved is an error that names the reference and shows no value.
// So is what exceeds MaxValue, MaxDerived, MaxDepth, MaxFetches or
// ResolverConfig.MaxSize. Every value, and everything that is made of one, is in
// the task's Set before anybody else has it.
//
// Put values into a step's environment, and refer to the variable in the command.
// A value in a script is kept off the command line by the driver; one in the
// arguments of a program makes the step fail, and one that a script gives to a
// program is on that program's command line, where every process sees it.
//
// # What is masked
//
// A byte is masked when it lies in any occurrence of any form of any value;
// every longest run of such bytes becomes one Replacement, whatever its length.
// So overlapping, nested and touching occurrences become one, the longest match
// wins, and neither the length nor the number of values shows. How the text is
// cut into writes makes no difference (SPEC S4).
//
// The forms of a value are (SPEC S3):
//
//   - the value without newlines at its end, with each of its line ends written
//     as LF, as CRLF, as CR, and as the CR CR LF that a terminal makes of CRLF;
//   - each line of a multi-line value, without the white space around it, that
//     has at least Config.MinLine characters;
//   - its base64, standard and URL alphabet, with and without padding, also
//     wrapped at 64 or 76 columns, and at each of the three alignments within a
//     longer encoded text;
//   - its URL encodings: of a query, of a path, and of a component as JavaScript
//     and others write it, with hexadecimal digits of either case;
//   - its content as a JSON string, as Go, JavaScript, Python, PHP and .NET write it;
//   - its shell quotings, as in scripts and as bash and dash trace commands (set -x):
//     within single quotes, within double quotes, with backslashes, and as $'...';
//   - its hexadecimal digits, in lower and in upper case, also wrapped at 60 columns
//     (xxd -p), if it has at least four bytes: fewer digits are found in checksums by
//     accident.
//
// # What is not masked
//
// Values shorter than Config.MinLength, and values that are nothing but white
// space. Anything else that a program does to a value: cutting it up, reversing,
// changing its case, hexadecimal digits with anything between them, compression,
// encryption, two encodings on top of each other, colour codes in the middle. The
// character of a base64 text in which a value begins or ends in the middle of a
// character stays: it holds at most four bits of the value. Base64 within a
// longer encoded text stays when fewer than six of its characters belong to the
// value alone, and when a line break falls into it.
//
// # What it costs
//
// A Masker looks for all forms of all values at once. On ordinary text it touches
// every eighth to sixteenth byte, however many values there are, and passes text
// on without copying it where nothing is masked. One short value (its shortest
// form has less than 15 bytes; less than 7; less than 3) adds a search that
// touches every fourth (second; every) byte. Text that looks like secrets all the
// time, by accident or on purpose, is left to an automaton that takes two steps
// for a byte at most on average; it is built when first needed and takes about 25
// bytes of memory for each byte of a form. Writing allocates nothing in the steady
// state. docs/benchmarks.md has figures.
//
// Start reading at resolve.go for references, and at masker.go for masking; coverer.go decides on bytes, finder.go and machine.go
// look for values.
package secrets
