package manager

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/delegate-io/dlite/manager/api"
)

const (
	// maxAborts is the largest number of stages of one call.
	maxAborts = 1000
	// abortsAtOnce is how many of them wait for the store at the same time, so that they share its writes.
	abortsAtOnce = 64
)

// postAbort aborts stages. The failure of one does not stop the others.
func (m *Manager) postAbort(w http.ResponseWriter, r *http.Request) {
	var in api.AbortRequest
	if !m.decodeStrict(w, r, &in, knownShapes().abort) {
		return
	}
	if len(in.Stages) == 0 {
		writeError(w, fmt.Errorf("%w: stages is empty: it must have the ids of the stages", ErrInvalid))
		return
	}
	if err := checkCount("stages", len(in.Stages), maxAborts); err != nil {
		writeError(w, err)
		return
	}
	out := struct {
		Results []api.AbortResult `json:"results"`
	}{make([]api.AbortResult, len(in.Stages))}
	places := make(chan struct{}, abortsAtOnce)
	var all sync.WaitGroup
	for i, id := range in.Stages {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			out.Results[i] = api.AbortResult{ID: id}
			s, err := m.AbortStage(r.Context(), account(r), id)
			if out.Results[i].Status = s.Status; err != nil {
				out.Results[i].Error = err.Error()
			}
		})
	}
	all.Wait()
	writeJSON(w, http.StatusOK, out)
}
