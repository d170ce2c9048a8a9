package endtoend_test

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

const (
	// podScenes is the number of delegates that are killed at the same time, each in its own
	// namespace. They run in parallel because a pod's life is mostly waiting.
	podScenes = 4
	// podsAtOnce is the number of parallel transactions of each delegate.
	podsAtOnce = 2
)

// podScene is a scene whose delegate creates pods.
type podScene struct {
	*scene
	cluster *testbed.Cluster
	pods    *podOrders
}

func newPodScene(t *testing.T) *podScene {
	t.Helper()
	c := testbed.Kubernetes(t)
	s := &podScene{scene: newSceneOn(t, nil, ""), cluster: c, pods: &podOrders{
		Kubeconfig: c.Kubeconfig, Namespace: c.NewNamespace(t), AgentImage: c.AgentImage(t),
	}}
	s.infra = "kubernetes"
	// A pod in the same namespace that the delegate does not own.
	out, err := c.Kubectl(t, "--namespace", s.pods.Namespace, "run", "bystander", "--image", c.Image, "--restart=Never", "--", "sleep", "3600")
	require.NoError(t, err, out)
	return s
}

// fill submits stages until the intended number is running. Each has a step that leaves child
// processes, a background step and credentials for a registry.
func (s *podScene) fill() {
	s.forgetEnded()
	for len(s.stages) < podsAtOnce {
		first := s.step("first", s.cluster.Image, "echo x > file; sleep 600."+s.token+" & (sleep 600."+s.token+" &) ; sleep 0.1")
		first.Auth = &stage.Auth{Address: "test.invalid", Username: "somebody", Password: "no real password"}
		service := s.step("service", s.cluster.Image, "sleep 600."+s.token)
		service.Detach, service.PortBindings = true, map[string]string{"80": "8080"}
		s.submitSteps(first, service, s.step("last", s.cluster.Image, "cat file"))
	}
}

// start runs the delegate until it has cleaned up; see [scene.start].
func (s *podScene) start(o orders) bool {
	o.Pods = s.pods
	return s.scene.start(o)
}

// assertClean looks for resources of earlier stages while no stage runs. Resources that the
// cluster created within tolerance may still exist.
func (s *podScene) assertClean(when string, tolerance time.Duration) {
	s.t.Helper()
	require.Empty(s.t, s.left(tolerance), "in the cluster %s", when)
	require.Empty(s.t, s.leftOnRecord(tolerance), "on record %s", when)
	if tolerance == 0 {
		require.Empty(s.t, testbed.CommandLines("600."+s.token), "processes %s", when)
	}
}

// left returns the pods, Secrets and Services of the namespace that are older than tolerance. It ignores
// the bystander, which must exist.
func (s *podScene) left(tolerance time.Duration) (left []string) {
	s.t.Helper()
	out, err := s.cluster.Kubectl(s.t, "--namespace", s.pods.Namespace, "get", "pods,secrets,services", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.creationTimestamp}{"\n"}{end}`)
	require.NoError(s.t, err, out)
	require.Contains(s.t, out, "Pod/bystander ")
	limit := time.Now().Add(-tolerance)
	for line := range strings.Lines(out) {
		name, created, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, err := time.Parse(time.RFC3339, created)
		require.NoError(s.t, err, line)
		if name != "Pod/bystander" && !at.After(limit) {
			left = append(left, name)
		}
	}
	return left
}

// Rules T2, D7: a delegate that kills itself at any point leaves no pod, no Secret and no Service after
// its next start.
func TestAKillAtEveryFaultPointLeavesNothingInTheCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	first := newPodScene(t)
	points := first.faultPoints(first, podsAtOnce, 15)
	names := slices.Sorted(maps.Keys(points))
	t.Logf("%d fault points: %s", len(names), strings.Join(names, ", "))
	for share := range podScenes {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			t.Parallel()
			s := newPodScene(t)
			killed := 0
			for i := share; i < len(names); i += podScenes {
				s.fill()
				for n := 1 + i%min(points[names[i]], podsAtOnce); !s.start(orders{Fault: names[i], N: n}); n++ {
					// The delegate died while it cleaned up after the previous one, which is a
					// fault point like any other.
				}
				s.assertClean("before a kill "+names[i], late)
				_, _ = io.WriteString(s.stdin, "\n") // it may have ended already; then its watches have not
				s.untilDead(names[i], s.fill)
				killed++
			}
			t.Logf("killed at %d fault points, %d stages submitted, which ended %v", killed, s.submitted, s.finish(s))
		})
	}
}

// Rules T2, D7: a delegate that is killed at random moments, with the stages in any state,
// leaves no pod, no Secret and no Service.
func TestKillsAtRandomInstantsLeaveNothingInTheCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	for share := range podScenes {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			t.Parallel()
			s := newPodScene(t)
			s.killAtInstants(s, killInstants(t, 5), 3*time.Second)
		})
	}
}
