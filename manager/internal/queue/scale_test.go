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

// fleets are ways in which delegates have tags and stages ask for them.
var fleets = map[string]func(*rand.Rand) (tags func(int) []string, selectors func(int) []string){
	// Pools of the same machines: 1,000 kinds of delegates, besides their names.
	"pools": func(*rand.Rand) (func(int) []string, func(int) []string) {
		all := func(i int) []string {
			return []string{
				fmt.Sprint("os", i%4), fmt.Sprint("arch", i/4%2), fmt.Sprint("region", i/8%5), fmt.Sprint("pool", i/40%25),
			}
		}
		return all, func(i int) []string { return all(i)[i/200%4:] } // four to one of them
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
	// No two delegates have the same tags, and every tag is asked for: the worst
	// of what is likely.
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

// crowd is a queue with many delegates of one slot each, all of which are busy,
// and many stages that wait.
type crowd struct {
	*Queue
	sets      [][]string
	delegates []*delegate
	works     []*Work // by number
	spare     []*Work // those that have ended, or were not submitted yet; oldest first
	at        int     // in delegates
	r         *rand.Rand
	limited   bool // stages belong to pipelines, half of which could be busy at a time
}

// payloads are stages to submit. They are made in advance: what they take is the
// caller's.
func (c *crowd) payloads(n int) []*Work {
	out := make([]*Work, n)
	for i := range out {
		id := "stage-" + strconv.Itoa(i)
		set := c.sets[i%len(c.sets)]
		if i < len(c.delegates) {
			set = nil // one to keep each delegate busy
		}
		out[i] = &Work{
			ID: id, Stage: true, Selectors: set, QueueTimeout: 8 * time.Hour, RunTimeout: time.Hour,
			Variants: []Variant{{Types: []string{"init"}, Task: &task.Task{ID: id, Type: "init", Timeout: 60_000}}},
		}
		if i%10 == 9 {
			out[i].Priority = High
		}
		if c.limited {
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

func newCrowd(tb testing.TB, fleet string, waiting int, limited bool) (c *crowd, bytesEach int) {
	c = &crowd{Queue: New(Config{MaxFinished: 100}), limited: limited, r: rand.New(rand.NewPCG(1, 2))} //nolint:gosec // the same each time
	if limited {
		for _, name := range pipelines {
			c.SetLimit(acc, name, fleetSize/2/len(pipelines))
		}
	}
	tags, selectors := fleets[fleet](c.r)
	seen := map[string]bool{}
	for i := 0; len(c.sets) < selectorSets; i++ {
		s := selectors(i)
		if key := fmt.Sprint(s); !seen[key] || i > 10*selectorSets {
			seen[key] = true
			c.sets = append(c.sets, s)
		}
	}
	for i := range fleetSize {
		id := c.Register(acc, Registration{Name: fmt.Sprint("d", i), Tags: tags(i)})
		if err := c.SetCapacity(acc, id, 1); err != nil {
			tb.Fatal(err)
		}
		c.delegates = append(c.delegates, c.accounts[acc].delegates[id])
	}
	const spare = 300 // more than ended ones are remembered
	works := c.payloads(fleetSize + waiting + spare)
	c.works, c.spare = works, works[fleetSize+waiting:]
	submit := func(all []*Work) {
		for _, w := range all {
			if err := c.Submit(acc, w); err != nil {
				tb.Fatal(err)
			}
		}
	}
	submit(works[:fleetSize])
	c.Events()
	before := heapInUse()
	submit(works[fleetSize : fleetSize+waiting])
	bytesEach = (heapInUse() - before) / waiting
	return c, bytesEach
}

// busy is the next delegate that has a stage, and the stage.
func (c *crowd) busy() (*delegate, *work) {
	for {
		c.at++
		d := c.delegates[c.at%len(c.delegates)]
		for _, w := range d.slots {
			return d, w
		}
	}
}

// cycle ends the stage of a delegate and submits another, and tells how long the
// two decisions took: what the delegate gets for its slot, with the offer, and
// who gets the new stage, which is nobody nearly always.
func (c *crowd) cycle(tb testing.TB) (fill, place time.Duration) {
	d, w := c.busy()
	if t, err := c.Acquire(acc, d.info.ID, w.ID); t == nil || err != nil {
		tb.Fatal(w.ID, err)
	}
	if err := c.Complete(acc, d.info.ID, w.ID, Answer{Outcome: Success, Code: task.OK}); err != nil {
		tb.Fatal(err)
	}
	d.info.Draining = true // so that Release leaves the slot free
	if err := c.Release(acc, w.ID); err != nil {
		tb.Fatal(err)
	}
	d.info.Draining = false
	at, now := c.last, time.Now()
	c.fill(d, at)
	fill = time.Since(now)
	id := c.spare[0].ID
	if err := c.Submit(acc, c.spare[0]); err != nil {
		tb.Fatal(err)
	}
	d.touch()
	if next := c.accounts[acc].works[id]; next.queued {
		now = time.Now()
		c.assign(next, nil, at) // once more
		place = time.Since(now)
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(w.ID, "stage-"))
	c.spare = append(c.spare[1:], c.works[n])
	if c.at%64 == 0 {
		c.Events()
	}
	return fill, place
}

// A decision's cost must not grow with what waits, nor with the delegates. The
// machine may be busy: lives are counted by the processor's time, with the
// garbage collector's, and the slowest hundredth of the decisions is told apart.
func BenchmarkDecisions(b *testing.B) {
	for _, fleet := range slices.Sorted(maps.Keys(fleets)) {
		for _, waiting := range []int{1_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/waiting=%d", fleet, waiting), func(b *testing.B) {
				c, each := newCrowd(b, fleet, waiting, false)
				for range 3 * fleetSize { // until the queue is as it will be
					c.cycle(b)
				}
				times := make([]time.Duration, 0, 1<<20)
				runtime.GC()
				before := processorTime(b)
				b.ReportAllocs()
				for b.Loop() {
					fill, place := c.cycle(b)
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
				b.ReportMetric(float64(b.N)/took.Seconds(), "lives/cpu-s")
				b.ReportMetric(float64(each), "B/waiting")
			})
		}
	}
}

// Limits of which all are reached, while half of the delegates are free and half of
// the rest is full: a stage's life costs the same, however many others wait.
func BenchmarkLimits(b *testing.B) {
	for _, waiting := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			c, each := newCrowd(b, "pools", waiting, true)
			for range 3 * fleetSize {
				c.cycle(b)
			}
			runtime.GC()
			before := processorTime(b)
			b.ReportAllocs()
			for b.Loop() {
				c.cycle(b)
			}
			b.ReportMetric(float64(b.N)/(processorTime(b)-before).Seconds(), "lives/cpu-s")
			b.ReportMetric(float64(each), "B/waiting")
			b.ReportMetric(float64(len(c.accounts[acc].requirements)), "requirements")
		})
	}
}

// Where a stage stands among many, and why.
func BenchmarkPlace(b *testing.B) {
	for _, waiting := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			c, _ := newCrowd(b, "pools", waiting, false)
			for i := 0; b.Loop(); i++ {
				if _, err := c.Place(acc, c.works[fleetSize+i*7919%waiting].ID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Saving and loading a queue in which much waits.
func BenchmarkSaveAndLoad(b *testing.B) {
	const waiting = 100_000
	c, _ := newCrowd(b, "pools", waiting, false)
	var saved bytes.Buffer
	if err := c.Save(&saved); err != nil {
		b.Fatal(err)
	}
	b.Run("save", func(b *testing.B) {
		for b.Loop() {
			if err := c.Save(io.Discard); err != nil {
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

// processorTime is what this process has used.
func processorTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
