//go:build !linux

package process

// await returns when the process has ended.
func (g *Group) await() { _ = g.cmd.Wait() }
