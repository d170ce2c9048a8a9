//go:build unix

package queue

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/delegate-io/dlite/task"
)

const (
	fleetSize    = 10_000 // delegates
	selectorSets = 1_000
)

// fleets are distributions of the tags of delegates and of the selectors of stages.
var fleets = map[string]func(*rand.Rand) (tags func(int) []string, selectors func(int) []string){
	// Pools of equal machines: 1,000 kinds of delegates, apart from their names.
	"pools": func(*rand.Rand) (func(int) []string, func(int) []string) {
		all := func(i int) []string {
			return []string{
				fmt.Sprint("os", i%4), fmt.Sprint("arch", i/4%2), fmt.Sprint("region", i/8%5), fmt.Sprint("pool", i/40%25),
			}
		}
		return all, func(i int) []string { return all(i)[i/200%4:] } // four to one of the tags
	},
	// Every other stage asks for a delegate by its name.
	"names": func(*rand.Rand) (func(int) []string, func(int) []string) {
		return func(i int) []string { return []string{fmt.Sprint("pool", i%50)} }, func(i int) []string {
			if i%2 == 0 {
				return []string{fmt.Sprint("d", i*7%fleetSize)}
			}
			return []string{fmt.Sprint("pool", i*7%50), fmt.Sprint("d", i*7%fleetSize)}[:1+i%4/3]
		}
	},
	// No two delegates have the same tags, and stages ask for every tag: the worst case
	// that is likely.
	"chaos": func(r *rand.Rand) (func(int) []string, func(int) []string) {
		pick := func(n int) []string {
			out := []string{}
			for _, i := range r.Perm(40)[:n] {
				out = append(out, fmt.Sprint("t", i))
			}
			return out
		}
		return func(int) []string { return pick(8) }, func(int) []string { return pick(1 + r.IntN(3)) }
	},
}

// busyFleet is a queue with many busy delegates of one slot each, and many stages that wait.
type busyFleet struct {
	*Queue
	sets      [][]string
	delegates []*delegate
	works     []*Work // by number
	spare     []*Work // to submit next: not submitted yet, or ended long ago
	at        int     // in delegates
	r         *rand.Rand
	limited   bool // stages belong to pipelines whose limits add up to half of the fleet
}

// payloads makes stages to submit. Their memory belongs to the caller, so the benchmarks
// make them in advance.
func (f *busyFleet) payloads(n int) []*Work {
	out := make([]*Work, n)
	for i := range out {
		id := "stage-" + strconv.Itoa(i)
		set := f.sets[i%len(f.sets)]
		if i < len(f.delegates) {
			set = nil // these keep the delegates busy
		}
		out[i] = &Work{
			ID: id, Stage: true, Selectors: set, QueueTimeout: 8 * time.Hour, RunTimeout: time.Hour,
			Variants: []Variant{{Types: []string{"init"}, Task: &task.Task{ID: id, Type: "init", Timeout: 60_000}}},
		}
		if i%10 == 9 {
			out[i].Priority = High
		}
		if f.limited {
			out[i].Groups = []string{pipelines[i%len(pipelines)]}
		}
	}
	return out
}

// pipelines are groups with a limit.
var pipelines = func() (names [100]string) {
	for i := range names {
		names[i] = fmt.Sprint("pipeline:", i)
	}
	return names
}()

func newBusyFleet(tb testing.TB, fleet string, waiting int, limited bool) (f *busyFleet, bytesEach int) {
	f = &busyFleet{Queue: New(Config{MaxFinished: 100}), limited: limited, r: rand.New(rand.NewPCG(1, 2))} //nolint:gosec // the same each time
	if limited {
		for _, name := range pipelines {
			f.SetLimit(acc, name, fleetSize/2/len(pipelines))
		}
	}
	tags, selectors := fleets[fleet](f.r)
	seen := map[string]bool{}
	for i := 0; len(f.sets) < selectorSets; i++ {
		s := selectors(i)
		if key := fmt.Sprint(s); !seen[key] || i > 10*selectorSets {
			seen[key] = true
			f.sets = append(f.sets, s)
		}
	}
	for i := range fleetSize {
		id := f.Register(acc, Registration{Name: fmt.Sprint("d", i), Tags: tags(i)})
		if err := f.SetCapacity(acc, id, 1); err != nil {
			tb.Fatal(err)
		}
		f.delegates = append(f.delegates, f.accounts[acc].delegates[id])
	}
	const spare = 300 // more than the queue remembers
	works := f.payloads(fleetSize + waiting + spare)
	f.works, f.spare = works, works[fleetSize+waiting:]
	submit := func(all []*Work) {
		for _, w := range all {
			if err := f.Submit(acc, w); err != nil {
				tb.Fatal(err)
			}
		}
	}
	submit(works[:fleetSize])
	f.Events()
	before := heapInUse()
	submit(works[fleetSize : fleetSize+waiting])
	bytesEach = (heapInUse() - before) / waiting
	return f, bytesEach
}

// busy returns the next delegate that has a stage, and the stage.
func (f *busyFleet) busy() (*delegate, *work) {
	for {
		f.at++
		d := f.delegates[f.at%len(f.delegates)]
		for _, w := range d.slots {
			return d, w
		}
	}
}

// cycle ends the stage of a delegate and submits another one. It returns how long the two
// decisions took: the next stage for the delegate, with the offer, and the delegate for
// the new stage, which nearly always is none.
func (f *busyFleet) cycle(tb testing.TB) (fill, place time.Duration) {
	d, w := f.busy()
	if t, err := f.Acquire(acc, d.info.ID, w.ID); t == nil || err != nil {
		tb.Fatal(w.ID, err)
	}
	if err := f.Complete(acc, d.info.ID, w.ID, Answer{Outcome: Success, Code: task.OK}); err != nil {
		tb.Fatal(err)
	}
	d.info.Draining = true // so that Release does not fill the slot
	if err := f.Release(acc, w.ID); err != nil {
		tb.Fatal(err)
	}
	d.info.Draining = false
	at, now := f.last, time.Now()
	f.dispatch(nil, d, nil, at)
	fill = time.Since(now)
	id := f.spare[0].ID
	if err := f.Submit(acc, f.spare[0]); err != nil {
		tb.Fatal(err)
	}
	d.touch()
	if next := f.accounts[acc].works[id]; next.queued {
		now = time.Now()
		f.assign(next, nil, at) // again, for the time
		place = time.Since(now)
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(w.ID, "stage-"))
	f.spare = append(f.spare[1:], f.works[n])
	if f.at%64 == 0 {
		f.Events()
	}
	return fill, place
}

// The goal is 500,000 decisions a second with 1,000,000 stages that wait and 10,000
// delegates. On a busy machine look at the whole stages for each second of CPU time,
// garbage collection included. The rate of decisions leaves the slowest hundredth out.
func BenchmarkDecisions(b *testing.B) {
	for _, fleet := range slices.Sorted(maps.Keys(fleets)) {
		for _, waiting := range []int{1_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/waiting=%d", fleet, waiting), func(b *testing.B) {
				f, each := newBusyFleet(b, fleet, waiting, false)
				for range 3 * fleetSize { // until the queue has its final shape
					f.cycle(b)
				}
				times := make([]time.Duration, 0, 1<<20)
				runtime.GC()
				before := processorTime(b)
				b.ReportAllocs()
				for b.Loop() {
					fill, place := f.cycle(b)
					if len(times)+2 <= cap(times) && place > 0 {
						times = append(times, fill, place)
					}
				}
				took := processorTime(b) - before
				slices.Sort(times)
				p99 := len(times) * 99 / 100
				var sum time.Duration
				for _, t := range times[:p99] {
					sum += t
				}
				b.ReportMetric(float64(p99)/sum.Seconds(), "decisions/s")
				b.ReportMetric(float64(times[p99].Nanoseconds()), "p99-ns")
				b.ReportMetric(float64(b.N)/took.Seconds(), "stages/cpu-s")
				b.ReportMetric(float64(each), "B/waiting")
			})
		}
	}
}

// All limits are reached, and half of the delegates are free: the cost of a stage must not
// grow with the number of stages that wait.
func BenchmarkLimits(b *testing.B) {
	for _, waiting := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			f, each := newBusyFleet(b, "pools", waiting, true)
			for range 3 * fleetSize {
				f.cycle(b)
			}
			runtime.GC()
			before := processorTime(b)
			b.ReportAllocs()
			for b.Loop() {
				f.cycle(b)
			}
			b.ReportMetric(float64(b.N)/(processorTime(b)-before).Seconds(), "stages/cpu-s")
			b.ReportMetric(float64(each), "B/waiting")
			b.ReportMetric(float64(len(f.accounts[acc].requirements)), "requirements")
		})
	}
}

// The place of a stage among many, with the reason.
func BenchmarkPlace(b *testing.B) {
	for _, waiting := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			f, _ := newBusyFleet(b, "pools", waiting, false)
			for i := 0; b.Loop(); i++ {
				if _, err := f.Place(acc, f.works[fleetSize+i*7919%waiting].ID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Saving and loading a queue in which many stages wait.
func BenchmarkSaveAndLoad(b *testing.B) {
	const waiting = 100_000
	f, _ := newBusyFleet(b, "pools", waiting, false)
	var saved bytes.Buffer
	if err := f.Save(&saved); err != nil {
		b.Fatal(err)
	}
	b.Run("save", func(b *testing.B) {
		for b.Loop() {
			if err := f.Save(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(saved.Len())/(waiting+fleetSize), "B/stage")
	})
	b.Run("load", func(b *testing.B) {
		q := New(Config{})
		for b.Loop() {
			if err := q.Load(bytes.NewReader(saved.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// The cost of a stage grows no faster than its selectors, apart from a logarithm: with a
// quadratic step, each of 20,000 selectors would take 20 times the time of each of 1,000.
// The test is not parallel: it measures the CPU time of the process.
func TestManySelectorsAreNotQuadratic(t *testing.T) {
	each := func(selectors, rounds int) time.Duration {
		s := newSelective(selectors)
		runtime.GC()
		before := processorTime(t)
		for range rounds {
			s.cycle(t)
		}
		return (processorTime(t) - before) / time.Duration(rounds*selectors)
	}
	few, many := each(1_000, 100), each(20_000, 5)
	t.Logf("%v for each of 1,000 selectors, %v for each of 20,000", few, many)
	if many > 6*few {
		t.Error("the cost of a selector grows with their number")
	}
}

// processorTime returns the CPU time of this process.
func processorTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
