package manager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/manager/api"
)

func TestTheTimeOfACloneIsWithinItsInit(t *testing.T) {
	t.Parallel()
	const most = 1<<63 - 1
	for name, c := range map[string]struct{ answered, kept *api.CloneTime }{
		"no clone":            {nil, nil},
		"within":              {&api.CloneTime{After: 100, Took: 900}, &api.CloneTime{After: 100, Took: 900}},
		"longer":              {&api.CloneTime{After: 400, Took: most}, &api.CloneTime{After: 400, Took: 600}},
		"after the end":       {&api.CloneTime{After: 1001}, nil},
		"before the start":    {&api.CloneTime{After: -1, Took: 5}, nil},
		"negative duration":   {&api.CloneTime{After: 1, Took: -5}, nil},
		"far after the end":   {&api.CloneTime{After: most, Took: most}, nil},
		"nothing took a time": {&api.CloneTime{}, &api.CloneTime{}},
	} {
		assert.Equal(t, c.kept, within(c.answered, time.Second), name)
	}
	assert.Nil(t, within(&api.CloneTime{After: 1}, -time.Second), "a clock that went back")
}
