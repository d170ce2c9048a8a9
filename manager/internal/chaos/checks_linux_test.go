package chaos_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/manager/api"
)

// verdict is the result of a run.
type checker struct {
	*scene
	watchers *watchers
	work     *submitters
	lines    []string
}

func (v *checker) report(what string, n any) {
	v.lines = append(v.lines, fmt.Sprintf("  %-58s %6v", what, n))
}

// table lists the events of the run and the results of the checks.
func (v *checker) table() string {
	return "done\n" + v.scene.table() + "found\n" + strings.Join(v.lines, "\n")
}

// collect waits for the end of all stages and runs the checks.
func (v *checker) collect(ctx context.Context) {
	t := v.t
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	quiet := v.await(ctx, "all stages to end and all slots to be free", func(stages []api.Stage, delegates []api.Delegate) string {
		return cmp.Or(unended(stages, len(v.orders)), occupied(delegates))
	})
	v.stopAll(ctx, v.delegates)
	if !quiet {
		return
	}
	if !v.await(ctx, "all delegates to be lost or unregistered", func(_ []api.Stage, delegates []api.Delegate) string {
		for _, d := range delegates {
			if d.State != "LOST" { // delegates of killed processes are lost
				return fmt.Sprintf("%s (%s) is %s", d.Name, d.ID, d.State)
			}
		}
		return occupied(delegates)
	}) {
		return
	}
	stages, _, err := v.ask(ctx, v.apis[0])
	assert.NoError(t, err)
	v.checkSameEverywhere(ctx, stages)
	v.checkEnds(ctx, stages)
	v.checkEffects(stages)
	v.checkSlots()
	v.stopAll(ctx, v.managers)
	v.managers[0].start()
	again, _, err := v.ask(ctx, v.apis[0])
	assert.NoError(t, err)
	v.compare("a restarted manager", stages, again)
	v.stopAll(ctx, v.managers[:1])
	v.report("errors", t.Failed())
}

// stopAll stops processes gracefully.
func (v *checker) stopAll(ctx context.Context, all []*process) {
	var ending sync.WaitGroup
	for _, p := range all {
		ending.Go(func() { assert.NoError(v.t, p.stop(ctx)) })
	}
	ending.Wait()
}

// await calls all managers until a condition holds for each.
func (v *checker) await(ctx context.Context, what string, missing func([]api.Stage, []api.Delegate) string) bool {
	begun := time.Now()
	for _, a := range v.apis {
		for {
			stages, delegates, err := v.ask(ctx, a)
			why := fmt.Sprint(err)
			if err == nil {
				if why = missing(stages, delegates); why == "" {
					break
				}
			}
			if !pause(ctx, 100*time.Millisecond) {
				v.t.Errorf("timed out waiting for %s: %s: %s", what, filepath.Base(a.name), why)
				return false
			}
		}
	}
	v.report("seconds for "+what, int(time.Since(begun).Seconds()))
	return true
}

// ask calls one manager.
func (v *checker) ask(ctx context.Context, a *apiCalls) ([]api.Stage, []api.Delegate, error) {
	var stages struct{ Stages []api.Stage }
	var delegates struct{ Delegates []api.Delegate }
	_, _, err := a.insist(ctx, http.MethodGet, "/api/stages", nil, &stages)
	if err == nil {
		_, _, err = a.insist(ctx, http.MethodGet, "/api/delegates", nil, &delegates)
	}
	return stages.Stages, delegates.Delegates, err
}

func unended(stages []api.Stage, want int) string {
	if len(stages) != want {
		return fmt.Sprintf("there are %d stages, not %d", len(stages), want)
	}
	var open []string
	for _, s := range stages {
		if !s.Status.Ended() {
			open = append(open, fmt.Sprintf("%s %s on %q, %s", s.ID, s.Status, s.DelegateID, asJSON(s)))
		}
	}
	if len(open) == 0 {
		return ""
	}
	return fmt.Sprintf("%d stages have not ended:\n%s", len(open), strings.Join(open[:min(len(open), 3)], "\n"))
}

func occupied(delegates []api.Delegate) string {
	for _, d := range delegates {
		if d.Stages > 0 || d.Running > 0 {
			return fmt.Sprintf("%s %s (%s) has %d stages and %d tasks", d.State, d.Name, d.ID, d.Stages, d.Running)
		}
	}
	return ""
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func same(a, b any) bool { return asJSON(a) == asJSON(b) }

// finalStates returns the parts of ended stages that no longer change. The cleanup
// of a lost delegate changes when the manager forgets the delegate.
func finalStates(stages []api.Stage) []api.Stage {
	out := slices.Clone(stages)
	for i := range out {
		out[i].Cleanup = api.StepState{}
	}
	return out
}

// compare reports the differences between a manager's stages and those of the first
// manager.
func (v *checker) compare(name string, first, others []api.Stage) {
	first, others = finalStates(first), finalStates(others)
	if same(first, others) {
		return
	}
	for i := range min(len(first), len(others)) {
		if !same(first[i], others[i]) {
			v.t.Errorf("%s has\n%s, the first one\n%s", name, asJSON(others[i]), asJSON(first[i]))
			break
		}
	}
	v.t.Errorf("the stages of %s and of the first manager differ in number: %d and %d", name, len(others), len(first))
}

// checkSameEverywhere checks that all managers have the same state.
func (v *checker) checkSameEverywhere(ctx context.Context, stages []api.Stage) {
	for _, a := range v.apis[1:] {
		others, _, err := v.ask(ctx, a)
		if assert.NoError(v.t, err) {
			v.compare(filepath.Base(a.name), stages, others)
		}
	}
	v.report("managers with the same state", len(v.apis))
}

// checkEnds checks that each stage has ended once, according to the events of all
// managers.
func (v *checker) checkEnds(ctx context.Context, stages []api.Stage) {
	w := v.watchers
	all := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.missed > 0 || len(w.ends) == len(stages)
	}
	for !all() && pause(ctx, 20*time.Millisecond) { // events may still arrive
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	statuses, attempts, never := map[string]int{}, map[string]int{}, 0
	policies := map[string]*api.Retry{}
	for _, o := range v.orders {
		policies[o.ID] = o.Retry
	}
	for _, s := range stages {
		if p := policies[s.ID]; p != nil && s.Status == api.Failure && strings.Contains(s.Error, "is lost") && len(s.Attempts)+1 < p.MaxAttempts {
			v.t.Errorf("%s must run again after the loss of its delegate, but ran %d times: %s", s.ID, len(s.Attempts)+1, s.Error)
		}
		statuses[string(s.Status)]++
		attempts[fmt.Sprint("stages run ", len(s.Attempts)+1, " times")]++
		switch n := w.ends[s.ID]; {
		case n > 1:
			v.t.Errorf("%s ended %d times", s.ID, n)
		case n == 0:
			never++
		}
	}
	if never > 0 && w.missed == 0 {
		v.t.Errorf("no event reported the end of %d stages", never)
	}
	if uint64(len(w.events)) != w.last && w.missed == 0 {
		v.t.Errorf("got %d events, but the last id is %d", len(w.events), w.last)
	}
	assert.Greater(v.t, statuses[string(api.Success)], len(stages)/2, "most stages should succeed: %v", statuses)
	for _, s := range sorted(statuses) {
		v.report("stages that ended as "+s, statuses[s])
	}
	for _, s := range sorted(attempts) {
		v.report(s, attempts[s])
	}
	v.report("submissions repeated", v.work.repeated.Load())
	v.report("of which the first one had arrived", v.work.found.Load())
	v.report("aborts", v.work.aborts.Load())
	v.report("events", len(w.events))
	v.report("events from any manager", w.eventCount)
	v.report("times that a manager had not kept events", w.missed)
	v.checkCapacities()
}

// checkCapacities checks by the order of the events that no delegate had more stages
// than its capacity. The caller holds the watchers' lock.
func (v *checker) checkCapacities() {
	limits := v.delegateIDs()
	has := map[string]map[string]bool{} // stages by delegate
	with := map[string]string{}         // delegate by stage
	for _, id := range sorted(v.watchers.events) {
		e := v.watchers.events[id]
		if e.Type != "stage" {
			continue
		}
		delete(has[with[e.Stage]], e.Stage)
		delete(with, e.Stage)
		if e.Status != api.Running {
			continue
		}
		if has[e.Delegate] == nil {
			has[e.Delegate] = map[string]bool{}
		}
		has[e.Delegate][e.Stage] = true
		with[e.Stage] = e.Delegate
		if most, ok := limits[e.Delegate]; !ok {
			v.t.Errorf("%s runs on %s, which is not a delegate", e.Stage, e.Delegate)
		} else if len(has[e.Delegate]) > most {
			v.t.Errorf("event %d: %s has %d of at most %d stages", id, e.Delegate, len(has[e.Delegate]), most)
		}
	}
}

// records calls each for the lines of the delegates' records.
func (v *checker) records(each func(file, what, about string)) {
	files, err := os.ReadDir(filepath.Join(v.dir, "records"))
	assert.NoError(v.t, err)
	for _, f := range files {
		r, err := os.Open(filepath.Join(v.dir, "records", f.Name()))
		if !assert.NoError(v.t, err) {
			continue
		}
		for lines := bufio.NewScanner(r); lines.Scan(); {
			what, about, _ := strings.Cut(lines.Text(), " ")
			each(f.Name(), what, about)
		}
		_ = r.Close()
	}
}

func (v *checker) orderOf(file string) delegateOrder {
	name, _, _ := strings.Cut(file, ".")
	return v.known[name]
}

// delegateIDs returns the capacity of each delegate, by its id.
func (v *checker) delegateIDs() map[string]int {
	limits := map[string]int{}
	v.records(func(file, what, about string) {
		if what == noteIs {
			limits[about] = v.orderOf(file).MaxStages
		}
	})
	return limits
}

// lostDelegates returns the delegates that were lost at some time, by id.
func (v *checker) lostDelegates() map[string]bool {
	v.watchers.mu.Lock()
	defer v.watchers.mu.Unlock()
	lost := map[string]bool{}
	for _, e := range v.watchers.events {
		if e.Type == "delegate" && e.Status == "LOST" {
			lost[e.Delegate] = true
		}
	}
	return lost
}

// checkSlots checks by the delegates' records that none ran more stages than its
// capacity, and that those that stopped gracefully had none left. A delegate that
// trusts its manager may have more after it was lost: it gets new stages together
// with the cleanups of its former ones.
func (v *checker) checkSlots() {
	lost, ids := v.lostDelegates(), map[string]string{}
	open, most, drained := map[string]int{}, 0, 0
	v.records(func(file, what, about string) {
		switch what {
		case noteIs:
			ids[file] = about
		case noteBegin:
			open[file]++
			most = max(most, open[file])
			if o := v.orderOf(file); open[file] > o.MaxStages && (!o.Trusting || !lost[ids[file]]) {
				v.t.Errorf("%s ran %d stages at once, of at most %d: with %s", file, open[file], o.MaxStages, about)
			}
		case noteEnd:
			open[file]--
		case noteDone:
			drained++
			assert.Equal(v.t, "0", about, "stages left on %s", file)
		}
	})
	assert.Equal(v.t, len(v.known), drained, "delegates that ended gracefully")
	v.report("most stages at once on a delegate", most)
	v.report("delegates that ended with nothing left", drained)
}

// effects returns the names of the side effects, and checks that none happened twice.
func (v *checker) effects() map[string]bool {
	dir := filepath.Join(v.dir, "effects")
	files, err := os.ReadDir(dir)
	assert.NoError(v.t, err)
	did, twice := map[string]bool{}, 0
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			continue // a step that was killed before its side effect
		}
		did[f.Name()] = true
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		assert.NoError(v.t, err)
		if n := strings.Count(string(b), "\n"); n != 1 {
			twice++
			v.t.Errorf("%s ran %d times:\n%s", f.Name(), n, b)
		}
	}
	v.report("side effects that happened twice", twice)
	return did
}

// checkEffects checks that no step ran twice in an attempt, and that no step of a
// successful stage is missing.
func (v *checker) checkEffects(stages []api.Stage) {
	did, missing := v.effects(), 0
	for _, s := range stages {
		if s.Status != api.Success {
			continue
		}
		group := s.ID
		if n := len(s.Attempts); n > 0 {
			group = fmt.Sprint(group, "-", n+1)
		}
		for _, step := range s.Steps {
			if !did[effectName(group, step.ID)] {
				missing++
				v.t.Errorf("%s succeeded, but %s did not run", s.ID, effectName(group, step.ID))
			}
		}
	}
	v.report("side effects", len(did))
	v.report("side effects that are missing", missing)
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
