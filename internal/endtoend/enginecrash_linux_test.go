package endtoend_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// roundsVariable sets how many times each calamity happens. The default is once.
const roundsVariable = "DLITE_TEST_ENGINE_ROUNDS"

// lanes run in parallel, each with its own engine.
const lanes = 2

// engineScene is a scene with its own engine, which is killed too.
type engineScene struct {
	*scene
	private *testbed.Private
	image   string   // declares a volume, so each of its containers gets one
	ids     []string // ids of all stages
	volume  string   // a volume that the delegate does not own
	// bridges are the bridges of networks that the engine has reported. An engine that is
	// killed while it creates a network may leave a bridge without a network, and interfaces
	// of a container that it was starting. The delegate cannot remove these.
	bridges map[string]bool
	// roots are mounts of containers' file systems that the test ignores: the bystander's, and
	// the mounts of a killed engine. An engine that is killed while it creates a container may
	// leave the mount in which it prepared the container.
	roots  map[string]bool
	ruined bool // no engine can start any more
}

// calamity is an event that hits the engine, the delegate or both. After it both run.
type calamity struct {
	name string
	acts []act
}

type act func(*engineScene) error

var (
	killEngine   act = func(s *engineScene) error { s.private.Kill(); s.seeRoots(); return nil }
	stopEngine   act = func(s *engineScene) error { s.private.Stop(); return nil }
	launchEngine act = func(s *engineScene) error { s.private.Launch(); return nil }
	awaitEngine  act = func(s *engineScene) error { return s.private.Await() }
	killDelegate act = func(s *engineScene) error { s.kill(); return nil }
	launch       act = func(s *engineScene) error { s.launch(orders{}); return nil }
	// A delegate with a short EngineWait starts to work while the engine is away. It would
	// also give up on the next engine.
	launchImpatient act = func(s *engineScene) error { s.launch(orders{EngineWait: 50 * time.Millisecond}); return nil }
	resume          act = func(s *engineScene) error { s.resume(); return nil }
	moreStages      act = func(s *engineScene) error { s.fill(); return nil }
	awaitStageEnds  act = func(s *engineScene) error { s.awaitStageEnds(); return nil }
)

// pause waits for a random time up to that many milliseconds, so that the next act hits any
// operation.
func pause(milliseconds int) act {
	return func(s *engineScene) error {
		select {
		case <-time.After(rand.N(time.Duration(milliseconds) * time.Millisecond)):
		case <-s.t.Context().Done():
		}
		return nil
	}
}

// The calamities happen at random moments, during four transactions.
var calamities = []calamity{
	{"the engine is killed", []act{killEngine, pause(300), launchEngine, awaitEngine}},
	{"the engine is killed, and again while it is being cleaned up", []act{
		killEngine, launchEngine, awaitEngine, pause(300), killEngine, launchEngine, awaitEngine,
	}},
	{"the engine is restarted", []act{stopEngine, pause(300), launchEngine, awaitEngine}},
	{"the engine is stopped, then the delegate killed", []act{stopEngine, killDelegate, launchEngine, awaitEngine, launch, resume}},
	{"the delegate is killed, then the engine, which is back first", []act{
		killDelegate, pause(50), killEngine, launchEngine, awaitEngine, launch, resume,
	}},
	{"the engine is killed, then the delegate, which is back later", []act{
		killEngine, pause(200), killDelegate, launchEngine, awaitEngine, launch, resume,
	}},
	{"the delegate is killed, then the engine, which is back later", []act{
		killDelegate, pause(50), killEngine, launch, pause(300), launchEngine, awaitEngine, resume,
	}},
	{"the engine is killed, then the delegate, which gives up waiting and goes to work", []act{
		killEngine, pause(200), killDelegate, launchImpatient, resume, moreStages, pause(300), launchEngine, awaitEngine,
		awaitStageEnds, killDelegate, launch, resume,
	}},
	{"the engine is killed, and the delegate while the engine comes back", []act{
		killEngine, launchEngine, pause(1000), killDelegate, launch, awaitEngine, resume,
	}},
}

// Rules T2, T3: the engine and the delegate are killed in any order. When both run again, no
// resource is left.
func TestKillsOfTheEngineLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	times := 1
	if s := os.Getenv(roundsVariable); s != "" {
		var err error
		times, err = strconv.Atoi(s)
		require.NoError(t, err, roundsVariable)
	}
	var ahead []calamity
	for range times {
		ahead = append(ahead, calamities...)
	}
	rand.Shuffle(len(ahead), func(i, j int) { ahead[i], ahead[j] = ahead[j], ahead[i] })
	future := make(chan calamity, len(ahead))
	for _, c := range ahead {
		future <- c
	}
	total := tally{ends: map[api.Status]int{}}
	begin := time.Now()
	t.Run("lanes", func(t *testing.T) {
		for lane := range lanes {
			t.Run(strconv.Itoa(lane), func(t *testing.T) {
				t.Parallel()
				for len(future) > 0 {
					s := newEngineScene(t)
					s.live(future)
					total.add(s)
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Logf("%d calamities of %d kinds in %s with %d transactions at once: %d stages submitted, which ended %v; nothing was left. "+
		"%d engines could not be started again by themselves, and were replaced",
		len(ahead), len(calamities), time.Since(begin).Round(time.Second), atOnce, total.submitted, total.ends, total.ruined)
	require.LessOrEqual(t, total.ruined, 1+len(ahead)/4, "engines that could not be started again")
}

// tally sums the results of the lanes.
type tally struct {
	mu                sync.Mutex
	ends              map[api.Status]int
	submitted, ruined int
}

func (t *tally) add(s *engineScene) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.submitted += s.submitted
	for status, n := range s.ends {
		t.ends[status] += n
	}
	if s.ruined {
		t.ruined++
	}
}

// live runs the calamities that are ahead until the engine cannot start any more. A calamity
// that ruined its engine is run again.
func (s *engineScene) live(ahead chan calamity) {
	s.launch(orders{})
	s.resume()
	for {
		select {
		case c := <-ahead:
			if err := s.suffer(c); err != nil {
				require.ErrorIs(s.t, err, testbed.ErrRuined)
				s.t.Logf("%s: %v", c.name, err)
				s.ruined = true
				ahead <- c
				if s.cmd != nil {
					s.kill()
				}
				return
			}
		default:
			s.last()
			return
		}
	}
}

func newEngineScene(t *testing.T) *engineScene {
	t.Helper()
	p := testbed.PrivateEngine(t, "--iptables=true", "--ip-masq=true")
	s := &engineScene{scene: newSceneOn(t, p.Engine, p.Host), private: p, bridges: map[string]bool{}, roots: map[string]bool{}, image: p.ImageWith(t, "VOLUME /data")}
	s.addBystanders(container.RestartPolicyAlways)
	v, err := p.Client.VolumeCreate(t.Context(), volume.CreateOptions{})
	require.NoError(t, err)
	s.volume = v.Name
	s.seeRoots()
	return s
}

// mountedRoots returns the mounted file systems of containers.
func (s *engineScene) mountedRoots() (places []string) {
	for _, place := range s.private.Mounts() {
		if strings.HasSuffix(place, "/merged") || strings.Contains(place, "/rootfs") {
			places = append(places, place)
		}
	}
	return places
}

func (s *engineScene) seeRoots() {
	for _, place := range s.mountedRoots() {
		s.roots[place] = true
	}
}

// fill submits stages with host processes and a container. In every second stage the container
// is a service.
func (s *engineScene) fill() {
	s.forgetEnded()
	sleep := "sleep 600." + s.token
	for len(s.stages) < atOnce {
		inside := s.step("container", s.image, "trap exit TERM; sleep 0.5 & wait; cat file")
		if len(s.ids)%2 == 0 {
			inside = s.step("service", s.image, "trap exit TERM; "+sleep+" & wait")
			inside.Detach = true
		}
		s.submitSteps(
			s.step("host", "", "echo x > file; "+sleep+" & ("+sleep+" &) ; sleep 0.1"),
			inside,
			s.step("last", "", "sleep 0.2; cat file"),
		)
		s.ids = append(s.ids, s.stages[len(s.stages)-1])
		_ = pause(300)(s)
	}
}

// suffer runs one round.
func (s *engineScene) suffer(c calamity) error {
	begin := time.Now()
	s.fill()
	_ = pause(800)(s)
	s.seeBridges()
	for _, act := range c.acts {
		if err := act(s); err != nil {
			return err
		}
	}
	s.awaitStageEnds()
	s.awaitClean(c.name, late)
	s.t.Logf("%v: %s (ended so far: %v)", time.Since(begin).Round(time.Millisecond), c.name, s.ends)
	return nil
}

func (s *engineScene) seeBridges() {
	networks, err := s.engine.Client.NetworkList(s.t.Context(), network.ListOptions{})
	require.NoError(s.t, err)
	for _, n := range networks {
		s.bridges[bridgeOf(n.ID)] = true
	}
}

func bridgeOf(network string) string { return "br-" + network[:12] }

// last checks that the delegate and the engine still work, and that no resource is left when
// the delegate has ended.
func (s *engineScene) last() {
	ends, interfaces := maps.Clone(s.ends), s.private.Interfaces()
	s.fill()
	s.awaitStageEnds()
	require.Equal(s.t, ends[api.Success]+atOnce, s.ends[api.Success], "%v", s.ends)
	s.awaitClean("at the end", 0)
	require.Subset(s.t, interfaces, s.private.Interfaces(), "interfaces that were made without a crash")
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	s.wait()
	require.Empty(s.t, s.remains(0), "when the delegate has ended")
	for _, d := range s.manager.Delegates(account) {
		require.Zero(s.t, d.Stages, "slots taken on delegate %s (%s)", d.ID, d.State)
	}
}

// resume lets a delegate work after it has cleaned up.
func (s *engineScene) resume() {
	s.expect("recovered")
	s.work()
	s.expect("working")
}

// awaitClean waits until no resource is left. A record may be as old as tolerance, because a
// killed process's requests may have effects for that long.
func (s *engineScene) awaitClean(when string, tolerance time.Duration) {
	s.t.Helper()
	var left []string
	for limit := time.Now().Add(2 * late); ; {
		if left = s.remains(tolerance); len(left) == 0 {
			return
		}
		if time.Now().After(limit) {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	assert.Empty(s.t, left, "after this: %s", when)
	s.t.FailNow()
}

// remains returns every unexpected resource and every missing one.
func (s *engineScene) remains(tolerance time.Duration) (left []string) {
	add := func(what string, list []string) {
		for _, one := range list {
			left = append(left, what+" "+one)
		}
	}
	for _, dir := range []string{filepath.Join(s.dir, "work"), s.memory} {
		entries, err := os.ReadDir(dir)
		require.NoError(s.t, err)
		for _, e := range entries {
			left = append(left, "folder "+filepath.Join(dir, e.Name()))
		}
	}
	add("process", testbed.CommandLines(s.token))
	add("control group", s.cgroups())
	add("record", s.leftOnRecord(tolerance))
	add("on the engine:", s.leftInside())
	return left
}

// cgroups returns the control groups of host steps. Their names contain the transaction.
func (s *engineScene) cgroups() (found []string) {
	own := map[string]bool{}
	for _, id := range s.ids {
		sum := sha256.Sum256([]byte(id))
		own["dlite-"+hex.EncodeToString(sum[:6])] = true
	}
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // others come and go
		}
		if name := entry.Name(); entry.IsDir() && len(name) > 18 && own[name[:18]] {
			found = append(found, path)
		}
		return nil
	})
	require.NoError(s.t, err)
	return found
}

// leftInside returns everything on the engine except the bystanders, also what its API does
// not show, and the bystanders that are damaged.
func (s *engineScene) leftInside() (left []string) {
	ctx, cli := s.t.Context(), s.engine.Client
	containers, err := cli.ContainerList(ctx, container.ListOptions{All: true})
	require.NoError(s.t, err)
	for _, c := range containers {
		switch {
		case c.ID != s.bystander:
			left = append(left, fmt.Sprintf("container %v %s", c.Names, c.State))
		case c.State != container.StateRunning:
			left = append(left, "the bystander is "+c.State)
		}
	}
	networks, err := cli.NetworkList(ctx, network.ListOptions{})
	require.NoError(s.t, err)
	for _, n := range networks {
		if n.ID != s.network && !slices.Contains([]string{"bridge", "host", "none"}, n.Name) {
			left = append(left, "network "+n.Name)
		}
	}
	volumes, err := cli.VolumeList(ctx, volume.ListOptions{})
	require.NoError(s.t, err)
	for _, v := range volumes.Volumes {
		if v.Name != s.volume {
			left = append(left, "volume "+v.Name)
		}
	}
	if len(containers) == 0 || len(networks) < 4 || len(volumes.Volumes) == 0 {
		left = append(left, "less than the bystanders")
	}
	return append(left, s.leftBelow()...)
}

// leftBelow looks for the engine's resources in the kernel. The bystander has a bridge, an
// interface, a control group, and its mounts.
func (s *engineScene) leftBelow() (left []string) {
	bridge := bridgeOf(s.network)
	for _, name := range s.private.Interfaces() {
		if name != bridge && s.bridges[name] {
			left = append(left, "bridge "+name)
		}
	}
	for _, field := range strings.Fields(s.private.Rules()) {
		if field != bridge && s.bridges[field] {
			left = append(left, "packet filter rule for "+field)
		}
	}
	for name, programs := range s.private.Cgroups() {
		if name != s.bystander {
			left = append(left, fmt.Sprintf("control group %s of %v", name, programs))
		}
	}
	for _, place := range s.mountedRoots() {
		if !s.roots[place] {
			left = append(left, "mount "+place)
		}
	}
	return left
}
