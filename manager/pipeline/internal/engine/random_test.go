package engine

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// setRuns sets the number of random pipelines from DLITE_PIPELINETEST_RUNS.
func setRuns(t *testing.T) {
	if runs := os.Getenv("DLITE_PIPELINETEST_RUNS"); runs != "" {
		require.NoError(t, flag.Set("rapid.checks", runs))
	}
}

func TestTheEngineActsAsTheModel(t *testing.T) {
	setRuns(t)
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{t: t, left: 12}
		root := g.pipeline()
		graph := g.chance(20)
		if graph {
			g.graph(root)
		}
		t.Logf("## graph %v%s", graph, draw(root, 0))
		machine, err := New(define(root, graph))
		require.NoError(t, err)
		c := &contest{
			t: t, machine: machine, run: Run{ID: "r", StartedAt: start}, rows: map[string][]byte{}, once: map[string]bool{},
			model: &model{root: root, graph: graph, hold: rapid.Bool().Draw(t, "hold")},
		}
		if c.model.hold {
			c.run.HoldFailed = time.Hour
		}
		s, commands, err := machine.Start(c.run)
		require.NoError(t, err)
		for path, n := range s.Nodes {
			c.rows[path] = encode(t, n)
		}
		c.take(commands)
		c.model.start()
		c.compare()
		c.play()
		for range 2 {
			if g.chance(40) {
				c.retry()
				c.play()
			}
		}
	})
}

// play lets events happen until the run ends.
func (c *contest) play() {
	for deadline := 0; len(c.waiting) > 0; deadline++ {
		require.Less(c.t, deadline, 5000, "the run does not end")
		c.step()
	}
	c.finish()
}

// retry runs the ended run again from a stage that it reached.
func (c *contest) retry() {
	n := rapid.SampledFrom(c.model.root.children).Draw(c.t, "stage")
	c.t.Logf("## retry %s", n.id)
	require.True(c.t, c.apply(Event{Kind: RetryRun, Node: n.path}))
	c.model.retry(n.id)
	c.aborts = 0
	c.compare()
}

// finish compares the final statuses.
func (c *contest) finish() {
	s := c.load()
	require.True(c.t, s.Root().Status.Ended(), "nothing is left to happen, and the run is %s", s.Root().Status)
	require.Zero(c.t, s.Root().Active)
	var compare func(n *modelNode)
	compare = func(n *modelNode) {
		node := s.Nodes[n.path]
		require.NotNil(c.t, node, n.path)
		require.Equal(c.t, n.status, node.Status, "%s: %s", n.path, node.Reason)
		for _, child := range n.children {
			compare(child)
		}
	}
	compare(c.model.root)
	require.Equal(c.t, time.Time{}, s.Root().Due)
}

// draw shows a random pipeline.
func draw(n *modelNode, depth int) string {
	text := fmt.Sprintf("\n## %s%s when %s%s parallelism %d/%d action %s of %s (%d, %v) background %v timeout %v depends %v", strings.Repeat("  ", depth), n.id, n.when,
		n.condition, n.parallelism, n.limit, n.action, n.errors, n.retries, n.interval, n.background, n.timeout, n.depends)
	for i, item := range n.items {
		for _, below := range item {
			text += fmt.Sprintf(" [%d]", i) + draw(below, depth+1)
		}
	}
	return text
}
