// Command plot draws the plots of docs/benchmarks.md from the output of "go test -bench":
//
//	go run ./internal/plot OUTPUT docs/img
//
// "make plots" runs the benchmarks, and then this command.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// plot describes one drawing. The group x of name is the position of a point. Its other
// groups are the line of the point; without one, each metric has a line.
type plot struct {
	file, title, x, y string
	name              *regexp.Regexp // of a benchmark, without the number of processors
	metrics           []string       // units in the output
}

var plots = []plot{
	{
		file: "decisions.svg", title: "Decisions of the queue", x: "stages that wait", y: "decisions/s",
		name: regexp.MustCompile(`^BenchmarkDecisions/([^/]+)/waiting=(?P<x>\d+)$`), metrics: []string{"decisions/s"},
	},
	{
		file: "masking.svg", title: "Masking a log, 32 KiB writes", x: "secrets", y: "MB for each second of CPU time",
		name:    regexp.MustCompile(`^Benchmark(Masker|Replacer)/secrets=(?P<x>\d+)/(plain|encoded)/writes=32KiB$`),
		metrics: []string{"MB/cpu-s"},
	},
	{
		file: "pickup.svg", title: "From submission to acquire, with a held poll", x: "store", y: "ms",
		name: regexp.MustCompile(`^BenchmarkPickup/store=(?P<x>\w+)$`), metrics: []string{"p50-ms", "p99-ms"},
	},
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: plot OUTPUT DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

// run draws all plots from the output in a file. A plot without a point is an error: its
// benchmark was renamed or has failed.
func run(output, dir string) error {
	text, err := os.ReadFile(output)
	if err != nil {
		return err
	}
	results := parse(string(text))
	for _, p := range plots {
		d := p.collect(results)
		if len(d.series) == 0 {
			return fmt.Errorf("%s: the output has no result of %s with %q", p.file, p.name, p.metrics)
		}
		if err := os.WriteFile(filepath.Join(dir, p.file), d.svg(), 0o644); err != nil { //nolint:gosec // a page of the documentation
			return err
		}
	}
	return nil
}
