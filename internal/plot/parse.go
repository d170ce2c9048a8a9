package main

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// result is one line of output: the name of a benchmark and its values by unit.
type result struct {
	name   string
	values map[string]float64
}

// processors is the suffix that the go command appends to the name of a benchmark.
var processors = regexp.MustCompile(`-\d+$`)

// parse returns the results in the output of "go test -bench". It skips other lines.
func parse(output string) []result {
	var all []result
	for line := range strings.Lines(output) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		r := result{processors.ReplaceAllString(f[0], ""), map[string]float64{}}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				r.values[f[i+1]] = v
			}
		}
		all = append(all, r)
	}
	return all
}

// drawing has the points of a plot.
type drawing struct {
	plot

	positions []string             // of the x axis, in order
	series    map[string][]float64 // by name; a value for each position, or -1
}

// collect returns the points of the plot. Of several results for one point, such as those
// of -count, it takes the median.
func (p plot) collect(results []result) *drawing {
	values := map[string]map[string][]float64{} // by series and position
	positions := map[string]bool{}
	for _, r := range results {
		m := p.name.FindStringSubmatch(r.name)
		if m == nil {
			continue
		}
		at := p.name.SubexpIndex("x")
		x := m[at]
		groups := slices.Delete(m[1:], at-1, at)
		for _, unit := range p.metrics {
			v, ok := r.values[unit]
			if !ok {
				continue
			}
			line := cmp.Or(strings.Join(groups, ", "), unit)
			if values[line] == nil {
				values[line] = map[string][]float64{}
			}
			values[line][x] = append(values[line][x], v)
			positions[x] = true
		}
	}
	d := &drawing{plot: p, positions: slices.SortedFunc(maps.Keys(positions), byNumber), series: map[string][]float64{}}
	for line, at := range values {
		for _, x := range d.positions {
			v := -1.0
			if all := at[x]; len(all) > 0 {
				slices.Sort(all)
				v = all[len(all)/2]
			}
			d.series[line] = append(d.series[line], v)
		}
	}
	return d
}

// byNumber compares numbers by value, and other texts as they are.
func byNumber(a, b string) int {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(a, b)
}
