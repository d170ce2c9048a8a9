package definition

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// mostCandidates bounds the time of a suggestion.
const mostCandidates = 500

// nearest returns the candidate that is most similar to word, or "" if none is similar.
func nearest(word string, candidates []string) string {
	const longest = 64
	if len(word) > longest {
		return ""
	}
	best, distance := "", max(2, len(word)/3)+1
	for i, candidate := range candidates {
		if i == mostCandidates {
			break
		}
		if difference := len(word) - len(candidate); difference >= distance || -difference >= distance {
			continue
		}
		if strings.EqualFold(word, candidate) {
			return candidate
		}
		if d := levenshtein.ComputeDistance(word, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// didYouMean returns the hint for an unknown word.
func didYouMean(word string, candidates []string) string {
	if best := nearest(word, candidates); best != "" {
		return "did you mean " + best + "?"
	}
	if len(candidates) == 0 || len(candidates) > 25 {
		return ""
	}
	sorted := slices.Sorted(slices.Values(candidates))
	return "known are " + strings.Join(sorted, ", ")
}
