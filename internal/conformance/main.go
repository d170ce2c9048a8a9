// Command conformance writes docs/conformance.md from the reports of runs of the
// conformance suite (DLITE_CONFORMANCE_DIR, see drivertest.Target):
//
//	go run ./internal/conformance REPORTS docs/conformance.md
//
// "make conformance" runs the suite on all infrastructures, then this command. After a run of some
// cases (go test -run) it updates these cases and keeps the page's results of the others.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// columns are the infrastructures, in the page's order.
var columns = []struct{ name, title string }{
	{"host", "host"}, {"docker", "Docker"}, {"kubernetes", "Kubernetes"}, {"kubernetes-restricted", "Kubernetes, restricted"}, {"vm", "VM (QEMU)"},
}

// report is the file that a run of the suite writes.
type report struct {
	Cases []struct {
		Name, Rule string
		Passed     bool
		NotRun     bool     `json:"not_run"`
		Lacks      []string // missing capabilities because of which the case did not run
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: conformance REPORTS PAGE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir, page string) error {
	var reports []report
	for _, c := range columns {
		b, err := os.ReadFile(filepath.Join(dir, c.name+".json"))
		if err != nil {
			return fmt.Errorf("the suite has left no report for %s: %w", c.title, err)
		}
		var r report
		if err := json.Unmarshal(b, &r); err != nil {
			return fmt.Errorf("report for %s: %w", c.title, err)
		}
		if len(reports) > 0 && len(r.Cases) != len(reports[0].Cases) {
			return errors.New("the reports are of different suites: run all again")
		}
		reports = append(reports, r)
	}
	old, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	text, failed := table(reports, readPage(string(old)))
	if failed > 0 {
		return fmt.Errorf("%d results are failures or missing: run these cases again", failed)
	}
	return os.WriteFile(page, []byte(text), 0o644) //nolint:gosec // a page for all users
}

// readPage returns the results in a page, by case. They are in the order of columns.
func readPage(page string) map[string][]string {
	results := map[string][]string{}
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) == 2+len(columns) {
			cells[len(cells)-1] = strings.TrimSuffix(cells[len(cells)-1], " |")
			results[strings.TrimPrefix(cells[0], "| ")] = cells[2:]
		}
	}
	return results
}

// table renders the page, and counts the cases that failed, and those that did not run and have
// no result in old.
func table(reports []report, old map[string][]string) (text string, failed int) {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("| case | rule |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.title)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
	passed := make([]int, len(reports))
	for i, c := range reports[0].Cases {
		fmt.Fprintf(&b, "| %s | %s |", c.Name, c.Rule)
		for j := range reports {
			o := reports[j].Cases[i]
			switch {
			case o.Passed:
				passed[j]++
				b.WriteString(" yes |")
			case o.NotRun && len(old[c.Name]) > 0:
				if old[c.Name][j] == "yes" {
					passed[j]++
				}
				fmt.Fprintf(&b, " %s |", old[c.Name][j])
			case len(o.Lacks) > 0:
				fmt.Fprintf(&b, " no %s |", strings.Join(o.Lacks, ", "))
			default:
				failed++
				b.WriteString(" FAILED |")
			}
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "| **%d cases** | |", len(reports[0].Cases))
	for _, n := range passed {
		fmt.Fprintf(&b, " **%d** |", n)
	}
	b.WriteString("\n")
	return b.String(), failed
}

const intro = `# Conformance of the drivers

One suite, ` + "`driver/drivertest`" + `, runs against real infrastructure: processes of this machine, a Docker engine, a
Kubernetes API server with a kubelet (also in a namespace with the Pod Security level "restricted", without root), and
QEMU machines with the agent inside. ` + "`make conformance`" + ` generates this page from a run without failures. "no X" means that
the infrastructure does not have the capability X; ` + "`go doc ./driver/drivertest Capabilities`" + ` describes each one.

`
