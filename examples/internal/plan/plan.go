// Package plan describes a pipeline before it runs: it writes explanations, and the places of problems.
package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// Text writes an explanation for a person. Flag sets an assumed output. More are further lines below nodes, by their
// paths.
func Text(e pipeline.Explanation, flag string, more map[string][]string) string {
	var b strings.Builder
	for _, n := range e.Run.Nodes {
		if n.Kind == "pipeline" || n.Kind == "strategy" && n.Status == "SUCCEEDED" {
			continue
		}
		indent := strings.Repeat("  ", depth(n))
		title := n.Kind + " " + n.Identifier
		if n.Type != "" && n.Kind == "step" {
			title += " (" + n.Type + ")"
		}
		fmt.Fprintf(&b, "%s%s: %s\n", indent, title, fate(n))
		for _, line := range append(facts(n, e.Plans[n.Path]), more[n.Path]...) {
			fmt.Fprintf(&b, "%s    %s\n", indent, line)
		}
	}
	if len(e.Missing) > 0 {
		fmt.Fprintf(&b, "\nmissing connectors, without which a run fails: %s\n", Connectors(e.Missing))
	}
	if len(e.Assumed) > 0 {
		fmt.Fprintf(&b, "\nassumed outputs, which %s sets: %s\n", flag, strings.Join(e.Assumed, ", "))
	}
	return b.String()
}

// Connectors lists connectors with their kinds.
func Connectors(kinds map[string]string) string {
	var all []string
	for _, id := range slices.Sorted(maps.Keys(kinds)) {
		all = append(all, id+" ("+kinds[id]+")")
	}
	return strings.Join(all, ", ")
}

// depth is the level of a node: 0 for a stage.
func depth(n api.Node) int {
	_, below, ok := strings.Cut(n.Path, ".spec.execution.")
	if !ok {
		return 0
	}
	return strings.Count("."+below, ".steps.")
}

// fate reports whether a node runs.
func fate(n api.Node) string {
	switch n.Status {
	case "SUCCEEDED":
		return "runs"
	case "SKIPPED":
		return "skipped: " + n.Reason
	}
	text := n.Status
	if n.Reason != "" {
		text += ": " + n.Reason
	}
	return text
}

// facts are the lines below a node.
func facts(n api.Node, p pipeline.Plan) []string {
	var lines []string
	add := func(name, text string) {
		if text != "" {
			lines = append(lines, name+": "+text)
		}
	}
	if p.When != "" {
		when := p.When
		if p.Condition != "" {
			when += " and " + p.Condition
		}
		add("when", when)
	}
	for _, v := range n.Evaluated {
		value := v.Value
		if v.Error != "" {
			value = "error: " + v.Error
		}
		add(v.Field, v.Text+" = "+oneLine(value))
	}
	if p.Stage != nil {
		add("delegate", strings.TrimSpace("driver "+p.Stage.Infra+" "+selectors(p.Stage.Selectors)))
	}
	if p.Step != nil {
		var data struct {
			Image string `json:"image"`
		}
		if json.Unmarshal(p.Step.Data, &data) == nil && data.Image != "" {
			add("image", data.Image)
		}
	}
	if p.Timeout > 0 && n.Status != "SKIPPED" {
		add("timeout", p.Timeout.Round(time.Second).String())
	}
	add("on failure", strings.Join(p.Failure, "; "))
	return lines
}

func selectors(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	return "with the tags " + strings.Join(tags, ", ")
}

// oneLine shortens a value to one line.
func oneLine(text string) string {
	const most = 100
	text = strings.ReplaceAll(text, "\n", "\\n")
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "..."
	}
	return text
}
