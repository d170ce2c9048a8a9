package source

import (
	"regexp"
	"strings"
)

// Patterns are compiled patterns of names.
type Patterns struct {
	include, exclude []*regexp.Regexp
	empty            bool
}

// Compile compiles patterns. In a pattern, * stands for any text without a slash, ** for any text, and ? for one
// character. A pattern that begins with ! excludes names. Without patterns, and with excluding ones only, every other
// name matches. The empty name matches if there are no patterns.
func Compile(patterns []string) *Patterns {
	p := &Patterns{empty: len(patterns) == 0}
	for _, text := range patterns {
		if rest, exclude := strings.CutPrefix(text, "!"); exclude {
			p.exclude = append(p.exclude, glob(rest))
		} else {
			p.include = append(p.include, glob(text))
		}
	}
	return p
}

// Match reports whether a name matches.
func (p *Patterns) Match(name string) bool {
	if p.empty || name == "" {
		return p.empty
	}
	for _, e := range p.exclude {
		if e.MatchString(name) {
			return false
		}
	}
	for _, i := range p.include {
		if i.MatchString(name) {
			return true
		}
	}
	return len(p.include) == 0
}

// Match reports whether a name matches patterns, as Compile describes them.
func Match(patterns []string, name string) bool { return Compile(patterns).Match(name) }

func glob(pattern string) *regexp.Regexp {
	text := regexp.QuoteMeta(pattern)
	text = strings.NewReplacer(`\*\*`, `(?s:.*)`, `\*`, `[^/]*`, `\?`, `[^/]`).Replace(text)
	return regexp.MustCompile("^(?s:" + text + ")$") // every text is valid: it is quoted
}

// Prefixes returns texts such that each name that matches begins with one of them. One of them is empty if any name may match.
func Prefixes(patterns []string) []string {
	var all []string
	for _, text := range patterns {
		if strings.HasPrefix(text, "!") {
			continue
		}
		if i := strings.IndexAny(text, "*?"); i >= 0 {
			text = text[:i]
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return []string{""}
	}
	return all
}
