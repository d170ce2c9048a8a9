package main

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// metrics counts the tasks of the runner.
type metrics struct {
	mu        sync.Mutex
	counters  map[string]int
	gauges    map[string]int
	durations map[string]time.Duration
}

func newMetrics() *metrics {
	return &metrics{counters: map[string]int{}, gauges: map[string]int{}, durations: map[string]time.Duration{}}
}

func (m *metrics) count(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counters[name]++
}

func (m *metrics) set(name string, value int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gauges[name] = value
}

func (m *metrics) stageBegan(pool string) { m.count(fmt.Sprintf("runner_stages_total{pool=%q}", pool)) }

func (m *metrics) stageEnded(pool string) {
	m.count(fmt.Sprintf("runner_stages_ended_total{pool=%q}", pool))
}

func (m *metrics) fellBack(pool string) {
	m.count(fmt.Sprintf("runner_fallbacks_total{pool=%q}", pool))
}

func (m *metrics) panicked() { m.count("runner_panics_total") }

func (m *metrics) stepEnded(pool string, status commandStatus, took time.Duration) {
	m.count(fmt.Sprintf("runner_steps_total{pool=%q,status=%q}", pool, status))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.durations[pool] += took
}

func (m *metrics) pool(name string, idle, busy int) {
	m.set(fmt.Sprintf("runner_pool_idle{pool=%q}", name), idle)
	m.set(fmt.Sprintf("runner_pool_busy{pool=%q}", name), busy)
}

// value returns a counter or a gauge.
func (m *metrics) value(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counters[name] + m.gauges[name]
}

// serve writes all values as text.
func (m *metrics) serve(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for name, n := range m.counters {
		lines = append(lines, fmt.Sprintf("%s %d", name, n))
	}
	for name, n := range m.gauges {
		lines = append(lines, fmt.Sprintf("%s %d", name, n))
	}
	for pool, d := range m.durations {
		lines = append(lines, fmt.Sprintf("runner_step_seconds_total{pool=%q} %g", pool, d.Seconds()))
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
}
