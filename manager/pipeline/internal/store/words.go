package store

import (
	"slices"
	"strings"
	"unicode"
)

// The kinds of marks.
const (
	labelMark    = "label"
	delegateMark = "delegate" // its name; a run may have several
	wordMark     = "word"     // of the Search of a run or a stage
)

const (
	mostWords = 32 // of a run or a stage, or of a filter's Text
	mostWord  = 32 // runes of a word; the rest is cut off
)

// words returns the different words of a text, in lower case.
func words(text string) []string {
	var all []string
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if runes := []rune(word); len(runes) > mostWord {
			word = string(runes[:mostWord])
		}
		if !slices.Contains(all, word) {
			all = append(all, word)
		}
		if len(all) == mostWords {
			break
		}
	}
	return all
}

// searchable returns the form of a Search with which [Filter.Text] is compared: each word follows
// a space.
func searchable(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return " " + strings.Join(words, " ")
}
