package journal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// After the machine's clock was set back, deadlines still come, and the clock of the log meets that of the machine
// again.
func TestAClockThatIsSetBackGoesOn(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	begin := time.Unix(1_000_000_000, 0)
	process := begin
	c := clock{process: func() time.Time { return process }}
	since := func() time.Duration { return c.now().Sub(begin) }
	assert.Zero(t, since())
	process = process.Add(time.Minute)
	assert.Equal(t, time.Minute, since())

	process = process.Add(year)
	assert.Equal(t, time.Minute+year, since(), "set forward")
	process = process.Add(-year)
	assert.Equal(t, time.Minute+year, since(), "set back")
	process = process.Add(time.Hour)
	assert.Equal(t, time.Minute+year+time.Hour/2, since())
	process = process.Add(2 * year)
	assert.Equal(t, time.Minute+time.Hour+2*year, since(), "as the process again")

	c.reach(process.Add(time.Hour)) // a restart after the clock was set back
	assert.Equal(t, process.Add(time.Hour), c.now())
	process = process.Add(time.Minute)
	assert.Equal(t, process.Add(time.Hour-time.Minute/2), c.now())
	c.reach(begin)
	assert.Equal(t, process.Add(time.Hour-time.Minute/2), c.now(), "an earlier entry")
}
