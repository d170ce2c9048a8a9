package manager

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

// maxDemandTags is the largest number of tags that a call may name.
const maxDemandTags = 100

// showDemand answers with the size of the work for delegates of one kind, for programs that scale delegates.
func (m *Manager) showDemand(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	kind, err := kindOfDelegates(q["tags"], q.Get("infra"), q.Get("pipeline"), q["label"])
	if err != nil {
		writeError(w, err)
		return
	}
	if err := m.journal.Sync(r.Context()); err != nil {
		writeError(w, err)
		return
	}
	d, err := m.demand(account(r), kind)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, d)
}

func (m *Manager) demand(account string, kind queue.Kind) (api.Demand, error) {
	d, err := m.core.queue.Demand(account, kind)
	return api.Demand{Value: d.Waiting + d.Running, Waiting: d.Waiting, Running: d.Running}, err
}

// kindOfDelegates checks the description of delegates and stages in a query. Tags has at most one text, with commas.
func kindOfDelegates(tags []string, infraName, pipeline string, labels []string) (queue.Kind, error) {
	var kind queue.Kind
	if len(tags) > 0 {
		kind.Tags = []string{}
		for tag := range strings.SplitSeq(tags[0], ",") {
			if strings.TrimSpace(tag) != "" {
				kind.Tags = append(kind.Tags, tag)
			}
		}
		if len(kind.Tags) > maxDemandTags {
			return kind, fmt.Errorf("%w: tags: there are %d, and at most %d are allowed", ErrInvalid, len(kind.Tags), maxDemandTags)
		}
	}
	if infraName != "" {
		sets := infra(infraName)
		if sets == nil {
			return kind, fmt.Errorf("%w: infra: it is %q; it must be local, vm or kubernetes", ErrInvalid, cut(infraName, maxPathName))
		}
		for _, types := range sets {
			kind.Types = append(kind.Types, types[:])
		}
	}
	if pipeline != "" {
		kind.Groups = append(kind.Groups, "pipeline:"+pipeline)
	}
	for _, label := range labels {
		if name, _, ok := strings.Cut(label, "="); !ok || name == "" {
			return kind, fmt.Errorf("%w: label: it is %q; it must have the form NAME=VALUE", ErrInvalid, cut(label, maxPathName))
		}
		kind.Groups = append(kind.Groups, "label:"+label)
	}
	slices.Sort(kind.Groups)
	return kind, nil
}
