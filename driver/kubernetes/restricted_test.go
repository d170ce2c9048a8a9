package kubernetes_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/task/stage"
)

// enforce sets the Pod Security level "restricted" for the namespace, and returns when the
// cluster enforces it.
func (p *place) enforce(tb testing.TB) {
	tb.Helper()
	p.kubectl(tb, "label", "namespace", p.namespace, "pod-security.kubernetes.io/enforce=restricted")
	require.Eventually(tb, func() bool {
		out, err := p.Kubectl(tb, "--namespace", p.namespace, "run", "probe", "--image", p.Image, "--dry-run=server")
		return err != nil && strings.Contains(out, "violates PodSecurity")
	}, patience, 50*time.Millisecond)
}

func restricted(c *kubernetes.Config) { c.Restricted = true }

// newRestricted returns a place that accepts only restricted pods, and a driver that creates
// such pods.
func newRestricted(tb testing.TB, changes ...func(*kubernetes.Config)) (*place, *kubernetes.Driver) {
	tb.Helper()
	p := newPlace(tb)
	p.enforce(tb)
	return p, p.driver(tb, append([]func(*kubernetes.Config){restricted}, changes...)...)
}

// Rules D1, D7: the conformance suite without root. For a report it runs completely,
// otherwise without the cases that do not depend on users.
func TestConformanceRestricted(t *testing.T) {
	p, api := newFault(t)
	p.enforce(t)
	s := &restrictedSite{site{place: p, api: api}}
	s.AgentImage(t) // first: its file is removed when this test ends
	only := rootMatters.MatchString
	if os.Getenv("DLITE_CONFORMANCE_DIR") != "" { // the suite writes a report
		only = nil
	}
	drivertest.Run(t, drivertest.Target{
		Name: "kubernetes-restricted",
		Site: func(testing.TB) drivertest.Site { return s },
		Step: func(step *stage.Step) { step.Image = s.Image },
		Only: only,
		Can: drivertest.Capabilities{
			OOM: true, Users: true, Mounts: true, Names: true, Labels: true, Interleaved: true, Separated: true,
		},
	})
}

// rootMatters matches the names of the cases that depend on users, files and processes.
var rootMatters = regexp.MustCompile(`user|memory|volume|init creates|files of a step exist|scratch|touch the disk|five megabytes|` +
	`an abort kills|soft stop begins|detached step (is|may|that ends)|name refers|whatever their mode|restarted driver`)

type restrictedSite struct{ site }

func (s *restrictedSite) Driver(tb testing.TB) driver.Driver {
	tb.Helper()
	return s.driver(tb, restricted)
}

// status prints the kernel's view of the step's process.
const status = `grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t'; echo "$(id -u):$(id -g)"; `

const nothing = "CapBnd:0000000000000000"

// Rule D7: a namespace with the level "restricted" rejects an ordinary pod with reasons, and
// accepts a restricted one with all kinds of containers.
func TestARestrictedNamespaceAcceptsRestrictedPods(t *testing.T) {
	t.Parallel()
	p, d := newRestricted(t)
	refused := p.prepare(t, p.driver(t))
	err := refused.init(t)
	var why *kubernetes.Error
	require.ErrorAs(t, err, &why)
	assert.Equal(t, "refused", why.Reason)
	require.ErrorContains(t, err, "runAsNonRoot")

	announced := p.sh("announced", status+`df -h /dev/shm | grep -c ' 8.0M'; cat made; echo x > /fast/file; echo x > /slow/file; echo x > "$HOME/file" && cat /slow/file`)
	announced.ShmSize = 8 << 20
	announced.Volumes = []*stage.VolumeMount{{Name: "fast", Path: "/fast"}, {Name: "slow", Path: "/slow"}}
	tx := p.begin(t, d, announce(announced), withVolumes("fast", "slow"), func(env *driver.Environment) {
		env.Files = []*stage.File{{Path: "made", Data: "by the init\n", Mode: 0o600}}
	})
	out := tx.run(t, announced)
	assert.Contains(t, out, "65532:65532\n1\nby the init\nx\n")
	for _, line := range []string{nothing, "CapEff:0000000000000000", "NoNewPrivs:1", "Seccomp:2"} {
		assert.Contains(t, out, line)
	}
	later := p.sh("later", status+"rm made; cat /slow/file")
	later.Volumes = announced.Volumes
	out = tx.run(t, later)
	assert.Contains(t, out, "65532:65532\nx\n")
	assert.Contains(t, out, nothing)
	assert.Contains(t, tx.added(t), "s-later-")
}

// withVolumes adds two empty volumes to the transaction. "fast" is in memory.
func withVolumes(names ...string) func(*driver.Environment) {
	return func(env *driver.Environment) {
		for _, name := range names {
			v := &stage.TempVolume{ID: name, Name: name}
			if name == "fast" {
				v.Medium = "memory"
			}
			env.Volumes = append(env.Volumes, &stage.Volume{Temp: v})
		}
	}
}

// Rule D7: a step may have a numeric user. RunAs is the user of the other steps.
func TestUsersOfARestrictedPod(t *testing.T) {
	t.Parallel()
	p, d := newRestricted(t, func(c *kubernetes.Config) { c.RunAs = "2000:3000" })
	own := p.sh("own", "id -u; id -g; id -G; echo x > file; stat -c %u:%g file; touch $HOME/file")
	own.User = "4321:4322"
	usual := p.sh("usual", "id -u; id -g; cat file; echo y > other")
	tx := p.begin(t, d, announce(own))
	for range 2 { // in the container that waits, and in one that is added
		assert.Equal(t, "4321\n4322\n4322\n4321:4322\n", tx.run(t, own))
	}
	assert.Equal(t, "2000\n3000\nx\n", tx.run(t, usual))
	groupless := p.sh("groupless", "id -u; id -g")
	groupless.User = "4321"
	assert.Equal(t, "4321\n0\n", tx.run(t, groupless))
}

// Rule D7: the names of an announced background step resolve, on all ports, and so do the
// extra hosts of announced steps.
func TestAnnouncedNamesOfARestrictedPod(t *testing.T) {
	t.Parallel()
	p, d := newRestricted(t)
	db := p.sh("db", "echo hello > index.html; echo up; exec httpd -f -p 80")
	db.Detach, db.NetworkAliases = true, []string{"data.base"}
	client := p.sh("client", "until wget -qO- http://data.base:80/index.html; do sleep 0.1; done; echo $DLITE_SERVICE_DB_HOST; grep one.test /etc/hosts")
	client.ExtraHosts = []string{"one.test:192.0.2.7"}
	tx := p.begin(t, d, announce(db, client))
	served := drivertest.NewOutput()
	res, err := tx.execute(t, db, served)
	require.NoError(t, err)
	require.True(t, res.Detached)
	assert.Equal(t, "hello\n127.0.0.1\n192.0.2.7\tone.test\n", tx.run(t, client))
	served.WaitFor(t, "up\n")
	assert.NotContains(t, served.String(), "root")
}

// Rule D7: without root, names that were not announced cannot be added. The output of the
// step reports it, and variables have the address, also after a restart of the delegate.
func TestNamesThatWereNotAnnouncedInARestrictedPod(t *testing.T) {
	t.Parallel()
	p, d := newRestricted(t)
	next := p.driver(t, restricted)
	tx := p.begin(t, d)
	db := p.sh("db", "echo up; sleep 600")
	db.Detach = true
	out := drivertest.NewOutput()
	_, err := tx.execute(t, db, out)
	require.NoError(t, err)
	out.WaitFor(t, "up\n")
	assert.Equal(t, "A pod without root cannot have the name db (it was not announced to the init): "+
		"other steps can use DLITE_SERVICE_DB_HOST.\nup\n", out.String())

	client := p.sh("client", "echo $DLITE_SERVICE_DB_HOST; grep -c dlite /etc/hosts; exit 0")
	client.ExtraHosts = []string{"one.test:192.0.2.7"}
	want := "A pod without root cannot have the extra host one.test (it was not announced to the init with an address).\n127.0.0.1\n"
	assert.Contains(t, tx.run(t, client), want)
	tx.d = next
	assert.Contains(t, tx.run(t, client), want)
}

// Rule D7: settings that need root are refused, with advice, before the driver creates a pod
// or a container.
func TestRestrictedPodsRefuseSettingsThatNeedRoot(t *testing.T) {
	t.Parallel()
	p, d := newRestricted(t)
	for change, make := range map[string]func(*driver.Environment){
		`volume "src" is a directory of the node`: func(env *driver.Environment) {
			env.Volumes = []*stage.Volume{{Host: &stage.HostVolume{ID: "src", Name: "src", Path: "/src"}}}
		},
		"the Docker socket": func(env *driver.Environment) { env.MountDockerSocket = true },
	} {
		tx := p.prepare(t, d, make)
		err := tx.init(t)
		require.ErrorContains(t, err, change)
		require.ErrorContains(t, err, `Pod Security level "restricted"`)
		assert.Empty(t, tx.ledger.all())
	}

	wishes := map[string]func(*stage.Step){
		"privileged":          func(s *stage.Step) { s.Privileged = true },
		"the Docker socket":   func(s *stage.Step) { s.MountDockerSocket = true },
		"as root":             func(s *stage.Step) { s.User = "root" },
		"to run as root: the": func(s *stage.Step) { s.User = "0:1000" },
		`as user "builder:`:   func(s *stage.Step) { s.User = "builder:1000" },
	}
	var steps []stage.Step
	for range wishes {
		steps = append(steps, p.sh("announced", "echo RAN"))
	}
	i := 0
	for _, wish := range wishes {
		wish(&steps[i])
		i++
	}
	tx := p.begin(t, d, announce(steps...)) // the refused steps do not fail the init
	before := len(tx.ledger.all())
	for want, wish := range wishes {
		step := p.sh("step", "echo RAN")
		wish(&step)
		out := drivertest.NewOutput()
		_, err := tx.execute(t, step, out)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, `Pod Security level "restricted"`)
		assert.Empty(t, out.String())
	}
	step := p.sh("step", "echo RAN")
	_, err := d.Execute(t.Context(), tx.env, &driver.Step{
		Step: step, ExtraVolumes: []*stage.Volume{{Host: &stage.HostVolume{ID: "src", Name: "src", Path: "/src"}}},
	}, drivertest.NewOutput(), tx.ledger)
	require.ErrorContains(t, err, "use a temp volume or a claim")
	assert.Len(t, tx.ledger.all(), before)
	assert.Empty(t, tx.added(t))

	step.Files = []*stage.File{{Path: "/etc/file", Data: "x"}}
	_, err = tx.execute(t, step, drivertest.NewOutput())
	require.ErrorContains(t, err, "put the file into the workspace")
}

// Rule D7: a claim belongs to the group of the pod, also if another user created its files.
func TestAClaimIsWritableInARestrictedPod(t *testing.T) {
	t.Parallel()
	p, d := newRestricted(t)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "old"), 0o755))
	p.claim(t, "ReadWriteOnce", fmt.Sprintf("local: {path: %s}\n  nodeAffinity: {required: {nodeSelectorTerms: "+
		"[{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}", dir, p.Node))
	tx := p.begin(t, d, func(env *driver.Environment) {
		env.Volumes = []*stage.Volume{{Claim: &stage.ClaimVolume{ID: "c", Name: "c", Claim: "cache"}}}
	})
	for _, user := range []string{"", "4321:4321"} {
		step := p.sh("step", "echo kept > /cache/old/file"+user+"; stat -c %g /cache/old/file"+user)
		step.User, step.Volumes = user, []*stage.VolumeMount{{Name: "c", Path: "/cache"}}
		assert.Equal(t, "65532\n", tx.run(t, step))
	}
}

// Rule D7: the cluster accepts the container for the clone.
func TestTheClusterAcceptsTheCloneOfARestrictedPod(t *testing.T) {
	t.Parallel()
	p, _ := newRestricted(t)
	d := p.driver(t, restricted, func(c *kubernetes.Config) { c.GitImage = p.Image })
	tx := p.prepare(t, d, func(env *driver.Environment) { env.Clone = &stage.Clone{URL: "https://git.invalid/repo.git"} })
	err := tx.init(t)
	require.ErrorContains(t, err, "git", "the image has no git")
	assert.False(t, errors.As(err, new(*kubernetes.Error)), "%v", err)
	assert.Equal(t, "clone", p.kubectl(t, "get", "pod", tx.pod(t), "-o", "jsonpath={.spec.containers[1].name}"))
}

// Settings of the configuration that exceed the level are overridden, and the others stay.
func TestSettingsOfRestrictedPods(t *testing.T) {
	t.Parallel()
	for runAs, want := range map[string]string{"0": "RunAs", "root": "RunAs", "1000:x": "RunAs", "-1": "RunAs"} {
		_, err := kubernetes.New(kubernetes.Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}, AgentImage: "a", Restricted: true, RunAs: runAs})
		require.ErrorContains(t, err, want, runAs)
	}
	_, err := kubernetes.New(kubernetes.Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}, AgentImage: "a", RunAs: "1:1"})
	require.ErrorContains(t, err, "Restricted")

	zero, group, yes, no := int64(0), int64(7), true, false
	p, d := newRestricted(t, func(c *kubernetes.Config) {
		c.SecurityContext = &corev1.PodSecurityContext{
			RunAsUser: &zero, RunAsNonRoot: &no, FSGroup: &group, SupplementalGroups: []int64{8},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined},
		}
		c.ContainerSecurityContext = &corev1.SecurityContext{
			RunAsUser: &zero, Privileged: &yes, AllowPrivilegeEscalation: &yes, RunAsNonRoot: &no,
			Capabilities:   &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined},
		}
	})
	tx := p.begin(t, d)
	assert.Equal(t, "65532\n65532 7 8\n", tx.run(t, p.sh("step", "id -u; id -G")))
}
