// Package secrets keeps secrets out of whatever leaves a task as text.
//
// A Set knows the values. A Masker is a writer that replaces them on their way
// to another writer; Set.Mask does the same to a text that is there as a whole:
//
//	set := secrets.NewSet(secrets.Config{}, token)
//	out := secrets.NewMasker(os.Stdout, set)
//	fmt.Fprintln(out, "the token is", token) // the token is ******
//	err := out.Close()
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
//   - the value without newlines at its end, and with LF and CRLF exchanged;
//   - each line of a multi-line value, without the white space around it, that
//     has at least Config.MinLine characters;
//   - its base64, standard and URL alphabet, with and without padding, also
//     wrapped at 64 or 76 columns, and at each of the three alignments within a
//     longer encoded text;
//   - its URL encodings: of a query, of a path, and of a component as JavaScript
//     and others write it, with hexadecimal digits of either case;
//   - its content as a JSON string, as Go, JavaScript and Python write it;
//   - its shell quotings: within single quotes, within double quotes, with
//     backslashes, and as $'...'.
//
// # What is not masked
//
// Values shorter than Config.MinLength, and values that are nothing but white
// space. Anything else that a program does to a value: cutting it up, reversing,
// hexadecimal, compression, encryption, two encodings on top of each other,
// colour codes in the middle. The character of a base64 text in which a value
// begins or ends in the middle of a character stays: it holds at most four bits
// of the value. Base64 within a longer encoded text stays when fewer than six of its
// characters belong to the value alone, and when a line break falls into it.
//
// Start reading at masker.go.
package secrets
