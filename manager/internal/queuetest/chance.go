package queuetest

import "pgregory.net/rapid"

// even is each number below 1024 as often as the others. Rapid's own numbers are
// mostly the least and the greatest.
var even = rapid.Custom(func(rt *rapid.T) (n int) {
	for range 10 {
		n *= 2
		if rapid.Bool().Draw(rt, "bit") {
			n++
		}
	}
	return n
})

// below is any number below n, which is small.
func below(rt *rapid.T, what string, n int) int { return even.Draw(rt, what) * n / 1024 }

// one is any of a list.
func one[T any](rt *rapid.T, what string, all []T) T { return all[below(rt, what, len(all))] }

// rarely is true once in n times.
func rarely(rt *rapid.T, what string, n int) bool { return below(rt, what, n) == n-1 }
