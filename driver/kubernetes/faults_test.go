package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// counting returns a script that writes n lines, a hundredth of a second apart, and ends with
// exit code 3.
func counting(lines int) string {
	return fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 3", lines)
}

// requireCounted fails unless the output has each line once and in order.
func requireCounted(t *testing.T, r *running, lines int) {
	t.Helper()
	res, err := r.end(2 * time.Minute)
	require.NoError(t, err)
	require.Equal(t, 3, res.ExitCode)
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	var got []string
	for line := range strings.Lines(r.out.String()) {
		if strings.HasPrefix(line, "line ") {
			got = append(got, line)
		}
	}
	require.Equal(t, want.String(), strings.Join(got, ""))
}

// Rule D7: a step continues, and its output is complete, without duplicates. Not parallel:
// the whole cluster loses its API server.
func TestAStepContinuesWithoutTheAPIServer(t *testing.T) {
	p, _ := newFault(t)
	announced := p.sh("announced", counting(500))
	tx := p.begin(t, p.driver(t), announce(announced))
	one := tx.start(t.Context(), t, announced, "line 20\n")
	other := tx.start(t.Context(), t, p.sh("other", counting(500)), "line 20\n")
	p.withoutAPIServer(t, func() {})
	requireCounted(t, one, 500)
	requireCounted(t, other, 500)
	// Later requests work too.
	requireCounted(t, tx.start(t.Context(), t, p.sh("after", counting(3)), "line 0"), 3)
}

// Rule D7: the same for the kubelet, the other part of the connection to the step.
func TestAStepContinuesWithoutTheKubelet(t *testing.T) {
	p, _ := newFault(t)
	announced := p.sh("announced", counting(300))
	tx := p.begin(t, p.driver(t), announce(announced))
	r := tx.start(t.Context(), t, announced, "line 20\n")
	p.KillKubelet(t)
	p.StartKubelet(t)
	requireCounted(t, r, 300)
}

// Rule T7: a step that is aborted while its pod cannot be reached is stopped later. Its call
// returns only then, because the step runs until then.
func TestAStepIsStoppedWhenTheAPIServerIsBack(t *testing.T) {
	p, _ := newFault(t)
	tx := p.begin(t, p.driver(t))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const mark = "600.0815"
	r := tx.start(ctx, t, p.sh("long", "echo begun; sleep "+mark), "begun")
	p.withoutAPIServer(t, stop)
	_, err := r.end(atOnce)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, testbed.ProcessesWith("cmdline", mark))
}

// An init that cannot reach the cluster ends with its context. Its cleanup runs later.
func TestAnInitEndsWithItsContextWhileTheAPIServerIsAway(t *testing.T) {
	p, _ := newFault(t)
	tx := p.prepare(t, p.driver(t))
	p.withoutAPIServer(t, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		require.Error(t, tx.d.Init(ctx, tx.env, tx.ledger))
		require.Less(t, time.Since(begin), atOnce)
	})
}

// Rule D7: the pods of a lost node are lost. Not parallel: all tests share the node.
func TestALostNodeFailsItsStepsAtOnce(t *testing.T) {
	p, _ := newFault(t)
	r := p.begin(t, p.driver(t)).start(t.Context(), t, p.sh("long", "echo begun; sleep 600"), "begun")
	taint := func(effect string) {
		out, err := p.Kubectl(t, "taint", "nodes", p.Node, "test/broken"+effect)
		require.NoError(t, err, out)
	}
	taint("=yes:NoExecute")
	defer taint("-")
	r.failsAtOnce("node lost")
}

// Rule D7: the driver resumes a broken watch and a broken stream each time, and the output
// has no gaps and no duplicates.
func TestOutputIsCompleteAfterBrokenConnections(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	c := layCable(t, p.rest)
	step := p.sh("announced", counting(400))
	tx := p.begin(t, p.driver(t), announce(step))
	r := tx.start(t.Context(), t, step, "line 5\n")
	for i := 50; i < 350; i += 50 {
		r.await("line " + strconv.Itoa(i) + "\n")
		c.cut()
	}
	requireCounted(t, r, 400)
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Greater(t, c.cuts, 10)
}

// Rule D7: a deletion of the pod ends its steps at once, and their errors report it.
func TestAPodThatIsDeletedByHandFailsItsStepsAtOnce(t *testing.T) {
	t.Parallel()
	p, api := newFault(t)
	long := p.sh("announced", "echo begun; sleep 600")
	tx := p.begin(t, p.driver(t), announce(long))
	one := tx.start(t.Context(), t, long, "begun")
	other := tx.start(t.Context(), t, p.sh("other", "echo begun; sleep 600"), "begun")
	require.NoError(t, api.Pods(p.namespace).Delete(t.Context(), tx.pod(t), metav1.DeleteOptions{}))
	one.failsAtOnce("deleted")
	other.failsAtOnce("deleted")
	_, err := tx.start(t.Context(), t, p.sh("after", "echo never"), "").end(atOnce)
	requireReason(t, err, "deleted")
}

// Rule D7: the same for a deletion without grace, which removes the pod from the cluster at
// once.
func TestAPodThatIsDeletedWithoutGraceFailsItsStepsAtOnce(t *testing.T) {
	t.Parallel()
	p, api := newFault(t)
	tx := p.begin(t, p.driver(t))
	r := tx.start(t.Context(), t, p.sh("long", "echo begun; sleep 600"), "begun")
	now := int64(0)
	require.NoError(t, api.Pods(p.namespace).Delete(t.Context(), tx.pod(t), metav1.DeleteOptions{GracePeriodSeconds: &now}))
	r.failsAtOnce("deleted")
}

// Rule D7: a drain of the node evicts the pod.
func TestAnEvictedPodFailsItsStepsAtOnce(t *testing.T) {
	t.Parallel()
	p, api := newFault(t)
	tx := p.begin(t, p.driver(t))
	r := tx.start(t.Context(), t, p.sh("long", "echo begun; sleep 600"), "begun")
	require.NoError(t, api.Pods(p.namespace).EvictV1(t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: tx.pod(t), Namespace: p.namespace},
	}))
	r.failsAtOnce("evicted")
}

// Rule D7: the node evicts a pod that exceeds its disk limit.
func TestAPodThatExceedsItsDiskLimitIsEvicted(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	d := p.driver(t, func(cfg *kubernetes.Config) {
		cfg.PodTemplate = []byte(`{"spec":{"volumes":[{"name":"dlite-workspace","emptyDir":{"sizeLimit":"8Mi"}}]}}`)
	})
	r := p.begin(t, d).start(t.Context(), t, p.sh("greedy", "dd if=/dev/zero of=big bs=1M count=40 2>/dev/null; echo begun; sleep 600"), "begun")
	_, err := r.end(patience) // the node checks every ten seconds
	requireReason(t, err, "evicted")
	require.ErrorContains(t, err, "exceeds")
}

// Rule D7: the result of a step that exceeds its memory limit differs from that of a failed
// step.
func TestAStepThatRunsOutOfMemoryReportsIt(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	greedy := p.sh("greedy", "echo begun; tail /dev/zero; echo unreachable $?")
	greedy.Run.Command[0] = "echo begun; exec tail /dev/zero"
	greedy.MemLimit = 48 << 20
	fine := p.sh("fine", "echo begun; echo fine")
	fine.MemLimit = 48 << 20
	tx := p.begin(t, p.driver(t), announce(greedy, fine))
	res, err := tx.start(t.Context(), t, greedy, "begun").end(patience)
	require.NoError(t, err)
	assert.True(t, res.OOMKilled, "%+v", res)
	assert.NotZero(t, res.ExitCode)
	// Other steps are not affected.
	res, err = tx.start(t.Context(), t, fine, "begun").end(patience)
	require.NoError(t, err)
	assert.Equal(t, driver.Result{}, driver.Result{ExitCode: res.ExitCode, OOMKilled: res.OOMKilled})
}

// Rule D7: any program may kill the hub's agent. Its steps fail at once.
func TestAPodWhoseAgentIsKilledFailsItsStepsAtOnce(t *testing.T) {
	t.Parallel()
	for _, container := range []string{"hub", "step"} {
		t.Run(container, func(t *testing.T) {
			t.Parallel()
			p, api := newFault(t)
			tx := p.begin(t, p.driver(t))
			r := tx.start(t.Context(), t, p.sh("long", "echo begun; sleep 600"), "begun")
			pod, err := api.Pods(p.namespace).Get(t.Context(), tx.pod(t), metav1.GetOptions{})
			require.NoError(t, err)
			killAgent(t, pod.UID, container)
			_, err = r.end(atOnce)
			requireReason(t, err, "ended")
		})
	}
}

// killAgent kills the agent of a pod that has this argument. The name of its control group
// has the id of the pod.
func killAgent(t *testing.T, pod types.UID, argument string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, dir := range dirs {
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup")) // the process may have ended
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		words := strings.Split(string(args), "\x00")
		if !strings.Contains(string(groups), string(pod)) || len(words) < 2 || words[1] != argument {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		require.NoError(t, err)
		process, err := os.FindProcess(pid)
		require.NoError(t, err)
		require.NoError(t, process.Kill())
		return
	}
	require.FailNow(t, "no agent runs in the pod", "%s", argument)
}

// Rule D7: an exhausted quota fails the init at once.
func TestAFullQuotaFailsTheInitAtOnce(t *testing.T) {
	t.Parallel()
	p, api := newFault(t)
	_, err := api.ResourceQuotas(p.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), atOnce)
	defer cancel()
	// the quota counts after the cluster has checked it once
	require.Eventually(t, func() bool {
		q, err := api.ResourceQuotas(p.namespace).Get(ctx, "none", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	}, atOnce, 20*time.Millisecond)
	tx := p.prepare(t, p.driver(t))
	err = tx.d.Init(ctx, tx.env, tx.ledger)
	requireReason(t, err, "quota")
	require.ErrorContains(t, err, "exceeded quota: none")
}

// Rule D7: a policy that forbids such pods fails the init at once.
func TestARefusedPodFailsTheInitAtOnce(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	out, err := p.Kubectl(t, "label", "namespace", p.namespace, "pod-security.kubernetes.io/enforce=restricted")
	require.NoError(t, err, out)
	ctx, cancel := context.WithTimeout(t.Context(), atOnce)
	defer cancel()
	tx := p.prepare(t, p.driver(t))
	err = tx.d.Init(ctx, tx.env, tx.ledger)
	requireReason(t, err, "refused")
	require.ErrorContains(t, err, "restricted")
}

// Rule D7: an image that cannot be pulled fails its step at once, announced or not, with the
// reason.
func TestAnImageThatDoesNotExistFailsItsStepAtOnce(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	registry := p.NewRegistry(t, "user", "a password for tests")
	for name, c := range map[string]struct {
		image string
		pull  string
		auth  *stage.Auth
		want  string
		limit time.Duration
	}{
		"unknown":        {registry.Host + "/team/none:1", "Always", &stage.Auth{Username: "user", Password: "a password for tests"}, "not found", atOnce},
		"not on node":    {"test.invalid/none:1", "Never", nil, "ErrImageNeverPull", atOnce},
		"no name":        {"UPPER:1", "", nil, "InvalidImageName", atOnce},
		"no credentials": {registry.Image, "Always", nil, "authori", atOnce},
		// The node might not have received the credentials yet.
		"wrong password": {registry.Image, "Always", &stage.Auth{Username: "user", Password: "a wrong password for tests"}, "authori", patience},
	} {
		for _, announced := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, announced %t", name, announced), func(t *testing.T) {
				t.Parallel()
				p, _ := newFault(t)
				step := p.sh("bad", "echo never")
				step.Image, step.Pull, step.Auth = c.image, c.pull, c.auth
				var changes []func(*driver.Environment)
				if announced {
					changes = append(changes, announce(step))
				}
				tx := p.begin(t, p.driver(t), changes...)
				_, err := tx.start(t.Context(), t, step, "").end(c.limit)
				requireReason(t, err, "image")
				require.ErrorContains(t, err, c.want)
				require.NotContains(t, err.Error(), "for tests")
				// The other steps of the transaction are not affected.
				requireCounted(t, tx.start(t.Context(), t, p.sh("good", counting(2)), "line 0"), 2)
			})
		}
	}
	// The image of the registry can be pulled with correct credentials.
	step := p.sh("good", counting(2))
	step.Image, step.Auth = registry.Image, &stage.Auth{Username: "user", Password: "a password for tests"}
	requireCounted(t, p.begin(t, p.driver(t)).start(t.Context(), t, step, "line 0"), 2)
}
