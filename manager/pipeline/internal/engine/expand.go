package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

var errNoIterations = errors.New("total number of iterations found to be 0")

// expand returns the children of a strategy, or why there are none.
func (t *turn) expand(n *Node, s *definition.Strategy) (plan, string, error) {
	s, err := given(n, s)
	if err != nil {
		return plan{}, "", err
	}
	if s.When != nil {
		ok, values, err := t.condition(n, "strategy.when", s.When)
		n.Values = values
		if err != nil {
			return plan{}, "", fmt.Errorf("when: %w", err)
		}
		if !ok {
			return plan{}, "the condition of the strategy is false: " + strings.TrimSpace(text(s.When.Value)), nil
		}
	}
	var p plan
	switch {
	case s.Matrix != nil:
		p.iterations, err = t.matrix(n, s.Matrix)
	case s.Parallelism != nil:
		p.iterations, err = t.parallelism(n, s.Parallelism)
	case s.Repeat != nil:
		p.iterations, err = t.repeat(n, s.Repeat)
	default:
		err = fmt.Errorf("%s: needs one of matrix, parallelism and repeat", at(s.Position))
	}
	if err != nil {
		return plan{}, "", err
	}
	if len(p.iterations) == 0 {
		return plan{}, "", errNoIterations
	}
	if s.MaxConcurrency != nil {
		p.limit, err = t.number(n, "strategy.maxConcurrency", s.MaxConcurrency, 1, 1<<30)
	}
	distinguish(p.iterations)
	return p, "", err
}

// number evaluates a field that holds a whole number.
func (t *turn) number(n *Node, path string, field *definition.Node, least, most int) (int, error) {
	value, err := t.evaluate(n, path, field)
	if err != nil {
		return 0, err
	}
	number, err := strconv.Atoi(strings.TrimSpace(text(value)))
	if err != nil || number < least || number > most {
		return 0, fmt.Errorf("%s: %s: %q is not a whole number from %d to %d", at(field.Position), path, clip(text(value)), least, most)
	}
	return number, nil
}

// list evaluates a field that holds a list.
func (t *turn) list(n *Node, path string, field *definition.Node) ([]any, error) {
	value, err := t.evaluate(n, path, field)
	if err != nil {
		return nil, err
	}
	if written, ok := value.(string); ok && strings.HasPrefix(strings.TrimSpace(written), "[") {
		var parsed Values
		if json.Unmarshal([]byte(`{"list":`+written+`}`), &parsed) == nil {
			value = parsed["list"]
		}
	}
	if written, ok := value.(string); ok && asked(text(field.Value)) { // a person writes a,b
		var items []any
		for item := range strings.SplitSeq(written, ",") {
			items = append(items, strings.TrimSpace(item))
		}
		value = items
	}
	values, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("%s: %s: %s is not a list: write a list, or an expression with .split(',')", at(field.Position), path, clip(text(value)))
	}
	if len(values) > maxIterations {
		return nil, fmt.Errorf("%s: %s: the list has %d items: at most %d are possible", at(field.Position), path, len(values), maxIterations)
	}
	return values, nil
}

// matrix returns the combinations of the values of all axes without those that are excluded. The
// last axis changes fastest.
func (t *turn) matrix(n *Node, m *definition.Matrix) ([]iteration, error) {
	axes := make([][]any, len(m.Axes))
	total := 1
	for i, axis := range m.Axes {
		values, err := t.list(n, "strategy.matrix."+axis.Key, axis.Value)
		if err != nil {
			return nil, err
		}
		if axes[i] = values; len(values) > 0 {
			total *= len(values)
		}
		if total > 100*maxIterations {
			return nil, fmt.Errorf("%s: strategy.matrix: more than %d combinations", at(m.Position), maxIterations)
		}
	}
	var excluded []map[string]any
	for i, entry := range m.Exclude {
		value, err := t.evaluate(n, fmt.Sprintf("strategy.matrix.exclude[%d]", i), entry)
		if err != nil {
			return nil, err
		}
		if fields, ok := value.(map[string]any); ok && len(fields) > 0 {
			excluded = append(excluded, fields)
		}
	}
	var all []iteration
	place := make([]int, len(axes))
	for more := nonEmpty(axes); more; more = count(place, axes) {
		if it := combination(m.Axes, axes, place); !excludes(excluded, it.matrix) {
			all = append(all, it)
		}
		if len(all) > maxIterations {
			return nil, fmt.Errorf("strategy.matrix: more than %d combinations", maxIterations)
		}
	}
	return all, t.rename(n, "strategy.matrix.nodeName", m.NodeName, all)
}

func nonEmpty(axes [][]any) bool {
	for _, values := range axes {
		if len(values) == 0 {
			return false
		}
	}
	return len(axes) > 0
}

// count moves to the next combination. It returns false after the last one.
func count(place []int, axes [][]any) bool {
	for i := len(place) - 1; i >= 0; i-- {
		if place[i]++; place[i] < len(axes[i]) {
			return true
		}
		place[i] = 0
	}
	return false
}

func combination(names []definition.Field, axes [][]any, places []int) iteration {
	it := iteration{matrix: make(Values, len(axes))}
	var postfix strings.Builder
	for i, place := range places {
		postfix.WriteString("_" + strconv.Itoa(place))
		it.matrix[names[i].Key] = axes[i][place]
	}
	it.postfix = postfix.String()
	return it
}

// excludes reports whether all keys of an entry match. A key that is not an axis never matches.
func excludes(entries []map[string]any, matrix Values) bool {
	for _, entry := range entries {
		matches := true
		for key, value := range entry {
			if have, ok := matrix[key]; !ok || text(have) != text(value) {
				matches = false
				break
			}
		}
		if matches {
			return true
		}
	}
	return false
}

func (t *turn) parallelism(n *Node, field *definition.Node) ([]iteration, error) {
	total, err := t.number(n, "strategy.parallelism", field, 0, maxIterations)
	return numbered(total), err
}

// numbered returns children that differ only by their number.
func numbered(total int) []iteration {
	all := make([]iteration, total)
	for i := range all {
		all[i].postfix = "_" + strconv.Itoa(i)
	}
	return all
}

// repeat returns a child for each count, each item, or each partition of the items.
func (t *turn) repeat(n *Node, r *definition.Repeat) ([]iteration, error) {
	if r.Items == nil {
		if r.Times == nil {
			return nil, fmt.Errorf("%s: strategy.repeat: needs times or items", at(r.Position))
		}
		total, err := t.number(n, "strategy.repeat.times", r.Times, 0, maxIterations)
		all := numbered(total)
		for i := range all {
			all[i].repeat = Values{"item": int64(i)}
		}
		if err != nil {
			return nil, err
		}
		return all, t.rename(n, "strategy.repeat.nodeName", r.NodeName, all)
	}
	items, err := t.list(n, "strategy.repeat.items", r.Items)
	if err != nil {
		return nil, err
	}
	if items, err = t.section(n, r, items); err != nil {
		return nil, err
	}
	all, err := t.partitions(n, r, items)
	if err != nil {
		return nil, err
	}
	return all, t.rename(n, "strategy.repeat.nodeName", r.NodeName, all)
}

// section returns the items from start to end. With the unit Percentage both round up, so that
// sections that follow each other take each item once.
func (t *turn) section(n *Node, r *definition.Repeat, items []any) ([]any, error) {
	from, to := 0, len(items)
	for _, bound := range []struct {
		field *definition.Node
		name  string
		place *int
	}{{r.Start, "start", &from}, {r.End, "end", &to}} {
		if bound.field == nil {
			continue
		}
		value, err := t.number(n, "strategy.repeat."+bound.name, bound.field, 0, 1<<30)
		if err != nil {
			return nil, err
		}
		*bound.place = min(share(value, len(items), r.Unit), len(items))
	}
	if from >= to {
		return nil, nil
	}
	return items[from:to], nil
}

// share returns a count, or a percentage of a total, rounded up.
func share(value, total int, unit string) int {
	if unit != "Percentage" {
		return value
	}
	return (min(value, 100)*total + 99) / 100
}

func (t *turn) partitions(n *Node, r *definition.Repeat, items []any) ([]iteration, error) {
	if r.PartitionSize == nil {
		all := numbered(len(items))
		for i := range all {
			all[i].repeat = Values{"item": items[i]}
		}
		return all, nil
	}
	size, err := t.number(n, "strategy.repeat.partitionSize", r.PartitionSize, 1, 1<<30)
	if err != nil {
		return nil, err
	}
	size = max(1, share(size, len(items), r.Unit))
	var all []iteration
	for from := 0; from < len(items); from += size {
		part := items[from:min(from+size, len(items))]
		all = append(all, iteration{
			postfix: "_" + strconv.Itoa(len(all)), repeat: Values{"item": part[0], "partition": append([]any(nil), part...)},
		})
	}
	return all, nil
}

// rename sets the postfixes to the rendered nodeName.
func (t *turn) rename(n *Node, path string, field *definition.Node, all []iteration) error {
	if field == nil {
		return nil
	}
	e := t.element(n)
	for i := range all {
		child := &Node{
			Path: n.Path + all[i].postfix, Source: n.Source, Parent: n.Path, Kind: e.kind, Identifier: e.id + all[i].postfix,
			Index: i, Total: len(all), Postfix: all[i].postfix, Matrix: all[i].matrix, Repeat: all[i].repeat, Attempt: n.Attempt,
		}
		value, err := t.renderAs(child, path, field, expression.Refuse)
		if err != nil {
			return err
		}
		name := identifier(text(value))
		if name == "" {
			return fmt.Errorf("%s: %s: the name of child %d is empty", at(field.Position), path, i)
		}
		all[i].postfix = "_" + name
	}
	return nil
}

// identifier makes a text usable in a path.
func identifier(text string) string {
	mapped := strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, strings.TrimSpace(text))
	return mapped[:min(len(mapped), 100)]
}

// distinguish appends _0, _1 and so on to postfixes that occur more than once.
func distinguish(all []iteration) {
	total := map[string]int{}
	for i := range all {
		total[all[i].postfix]++
	}
	used := map[string]bool{}
	next := map[string]int{}
	for i := range all {
		name := all[i].postfix
		if total[name] == 1 {
			used[name] = true
		}
	}
	for i := range all {
		name := all[i].postfix
		if total[name] == 1 {
			continue
		}
		unique := name
		for unique == name || used[unique] {
			unique = name + "_" + strconv.Itoa(next[name])
			next[name]++
		}
		used[unique] = true
		all[i].postfix = unique
	}
}
