package queuetest

import "pgregory.net/rapid"

// uniform draws a number below 1024. Rapid's own generators prefer the smallest and
// largest numbers.
var uniform = rapid.Custom(func(rt *rapid.T) (n int) {
	for range 10 {
		n *= 2
		if rapid.Bool().Draw(rt, "bit") {
			n++
		}
	}
	return n
})

// below draws a number below n, which must be small.
func below(rt *rapid.T, what string, n int) int { return uniform.Draw(rt, what) * n / 1024 }

// pick draws an element of a list.
func pick[T any](rt *rapid.T, what string, all []T) T { return all[below(rt, what, len(all))] }

// oneIn is true once in n draws.
func oneIn(rt *rapid.T, what string, n int) bool { return below(rt, what, n) == n-1 }
