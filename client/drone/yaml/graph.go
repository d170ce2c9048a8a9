package yaml

import (
	"slices"
	"strconv"
)

// connect sets the dependencies of the steps, as the file has them. If it has none, each
// step depends on its predecessor. Then it replaces skipped steps by their dependencies.
func (c *compiler) connect() error {
	index := map[string]int{}
	graph := false
	for i, s := range c.plan.Steps {
		source := c.sources[i]
		if _, twice := index[s.Name]; twice {
			if s.Name == cloneName && !c.clone.disable {
				return source.source.errorf("the name clone belongs to the clone: rename the step, or set clone.disable")
			}
			return source.source.errorf("the name %q is the name of an earlier step or service: rename one of them", s.Name)
		}
		index[s.Name] = i
		graph = graph || source != nil && len(source.dependsOn) > 0
	}
	before := make([][]int, len(c.plan.Steps))
	for i := range c.plan.Steps {
		if !graph {
			if i > 0 {
				before[i] = []int{i - 1}
			}
			continue
		}
		list, err := c.dependencies(i, index)
		if err != nil {
			return err
		}
		before[i] = list
	}
	order, err := c.order(before)
	if err != nil {
		return err
	}
	c.withoutSkipped(before, order)
	return nil
}

// dependencies returns the dependencies of a step of a graph. A step without any depends on
// the clone.
func (c *compiler) dependencies(i int, index map[string]int) ([]int, error) {
	source := c.sources[i]
	if source == nil {
		return nil, nil
	}
	clone, hasClone := index[cloneName]
	if len(source.dependsOn) == 0 {
		if hasClone && c.sources[clone] == nil {
			return []int{clone}, nil
		}
		return nil, nil
	}
	var list []int
	for _, name := range source.dependsOn {
		j, known := index[name]
		switch {
		case !known && name == cloneName: // the clone is disabled
			continue
		case !known:
			return nil, source.members["depends_on"].errorf("the pipeline has no step %q", name)
		case !slices.Contains(list, j):
			list = append(list, j)
		}
	}
	return list, nil
}

// order returns the steps so that each is after its dependencies. It refuses a cycle.
func (c *compiler) order(before [][]int) ([]int, error) {
	after := make([][]int, len(before))
	left := make([]int, len(before))
	var order []int
	for i, list := range before {
		left[i] = len(list)
		for _, j := range list {
			after[j] = append(after[j], i)
		}
		if len(list) == 0 {
			order = append(order, i)
		}
	}
	for next := 0; next < len(order); next++ {
		for _, i := range after[order[next]] {
			if left[i]--; left[i] == 0 {
				order = append(order, i)
			}
		}
	}
	if len(order) == len(before) {
		return order, nil
	}
	i := slices.IndexFunc(left, func(n int) bool { return n > 0 })
	return nil, c.sources[i].members["depends_on"].errorf("the step %q depends on itself, directly or through other steps", c.sources[i].name)
}

// withoutSkipped sets DependsOn to the steps that are not skipped. A skipped step passes its
// dependencies on.
func (c *compiler) withoutSkipped(before [][]int, order []int) {
	steps := c.plan.Steps
	for _, i := range order {
		depends := make([]bool, len(steps))
		for _, j := range before[i] {
			if !steps[j].Skipped {
				depends[j] = true
				continue
			}
			for _, k := range before[j] {
				depends[k] = true
			}
		}
		before[i] = nil
		for j, yes := range depends {
			if yes {
				before[i] = append(before[i], j)
				steps[i].DependsOn = append(steps[i].DependsOn, steps[j].Name)
			}
		}
	}
}

// number numbers the steps that are not skipped, and announces their containers.
func (c *compiler) number() {
	n := 0
	for i := range c.plan.Steps {
		s := &c.plan.Steps[i]
		if s.Skipped {
			continue
		}
		n++
		s.Number = n
		if s.Clone {
			continue
		}
		s.Execute.Environment["DRONE_STEP_NUMBER"] = strconv.Itoa(n)
		if s.Image != "" {
			c.plan.Init.Steps = append(c.plan.Init.Steps, s.Execute.Announcement())
		}
	}
}
