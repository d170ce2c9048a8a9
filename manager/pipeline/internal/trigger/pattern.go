package trigger

import (
	"regexp"
	"strings"
)

// Match reports whether a name matches patterns. In a pattern, * stands for any text without a slash, ** for any text,
// and ? for one character. A pattern that begins with ! excludes names. Without patterns, and with excluding ones only,
// every other name matches. The empty name matches if there are no patterns.
func Match(patterns []string, name string) bool {
	if len(patterns) == 0 {
		return true
	}
	if name == "" {
		return false
	}
	included, wanted := false, false
	for _, p := range patterns {
		text, exclude := strings.CutPrefix(p, "!")
		matches := glob(text).MatchString(name)
		if exclude && matches {
			return false
		}
		wanted = wanted || !exclude
		included = included || !exclude && matches
	}
	return included || !wanted
}

func glob(pattern string) *regexp.Regexp {
	text := regexp.QuoteMeta(pattern)
	text = strings.NewReplacer(`\*\*`, `(?s:.*)`, `\*`, `[^/]*`, `\?`, `[^/]`).Replace(text)
	return regexp.MustCompile("^(?s:" + text + ")$") // every text is valid: it is quoted
}
