package expression

import (
	"fmt"
	"strings"
)

const (
	maxCandidates = 1000
	maxName       = 64 // bytes
)

// didYouMean returns the end of an error about an unknown name.
func didYouMean(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return "; known are " + strings.Join(known, ", ")
}

// nearest returns the known name that resembles name most, or "".
func nearest(name string, known []string) string {
	lower := strings.ToLower(name)
	if len(lower) > maxName {
		return ""
	}
	best, least := "", max(1, len(name)/3)+1
	for i, k := range known {
		if i == maxCandidates {
			break
		}
		candidate := strings.ToLower(k)
		if len(candidate) > maxName || k == name {
			continue
		}
		if d := distance(lower, candidate); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance returns the number of insertions, deletions, changes and swaps of neighbours that make
// a to b.
func distance(a, b string) int {
	var rows [3][maxName + 1]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := range len(a) {
		before, above, row := &rows[(i+2)%3], &rows[i%3], &rows[(i+1)%3]
		row[0] = i + 1
		for j := range len(b) {
			d := above[j]
			if a[i] != b[j] {
				d++
			}
			d = min(d, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			row[j+1] = d
		}
	}
	return rows[len(a)%3][len(b)]
}

// count returns a number of things, or a range of it.
func count(least, most int, thing string) string {
	switch {
	case least == 1 && most == 1:
		return "1 " + thing
	case least == most:
		return fmt.Sprintf("%d %ss", least, thing)
	case most == least+1:
		return fmt.Sprintf("%d or %d %ss", least, most, thing)
	}
	return fmt.Sprintf("%d to %d %ss", least, most, thing)
}
