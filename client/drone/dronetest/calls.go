package dronetest

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"
)

// filter selects stages.
type filter struct {
	Kind, Type, OS, Arch, Variant, Kernel string
	Labels                                map[string]string
}

// matches reports whether a stage that no runner has suits the filter.
func (f filter) matches(st object) bool {
	labels, _ := st["labels"].(map[string]string)
	if st.text("status") != "pending" || st.text("machine") != "" || st.text("kind") != f.Kind || st.text("type") != f.Type || !maps.Equal(labels, f.Labels) {
		return false
	}
	if f.OS+f.Arch+f.Variant+f.Kernel == "" {
		return true
	}
	variant, kernel := st.text("variant"), st.text("kernel")
	return st.text("os") == f.OS && st.text("arch") == f.Arch && (variant == "" || variant == f.Variant) && (kernel == "" || kernel == f.Kernel)
}

// limited reports whether the limit of a stage holds it back: as many stages with its name are open
// before it. The caller holds mu.
func (s *Server) limited(st *stageRow) bool {
	limit, open := st.row.int("limit"), int64(0)
	if limit == 0 {
		return false
	}
	for _, other := range s.stages {
		if other.row.text("name") == st.row.text("name") && !final(other.row.text("status")) && (other.id < st.id || other.row.text("status") == "running") {
			open++
		}
	}
	return open >= limit
}

// request holds a call until a stage matches its filter.
func (s *Server) request(w http.ResponseWriter, r *http.Request) {
	var f filter
	if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	end := time.NewTimer(s.hold())
	defer end.Stop()
	for {
		s.mu.Lock()
		changed, restart := s.changed, s.restart
		for _, st := range s.sorted() {
			if f.matches(st.row) && !s.limited(st) {
				row := maps.Clone(st.row)
				s.mu.Unlock()
				answer(w, row)
				return
			}
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-restart:
			panic(http.ErrAbortHandler)
		case <-end.C:
			w.WriteHeader(http.StatusNoContent)
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) accept(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stages[id(r)]
	switch {
	case st == nil:
		fail(w, noRows)
		return
	case st.row.text("machine") != "":
		fail(w, conflict)
		return
	}
	st.set(object{"machine": r.URL.Query().Get("machine"), "status": "pending", "updated": unix()})
	s.notify()
	answer(w, st.row)
}

func (s *Server) details(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stages[id(r)]
	if st == nil {
		fail(w, noRows)
		return
	}
	b := st.build
	build := maps.Clone(b.row)
	var siblings []object
	for _, other := range b.stages {
		siblings = append(siblings, other.row)
	}
	build["stages"] = siblings
	repo := object{
		"id": int64(1), "uid": "1", "user_id": int64(1), "namespace": "octo", "name": "hello", "slug": "octo/hello", "scm": "git",
		"git_http_url": "https://git.example/octo/hello.git", "git_ssh_url": "git@git.example:octo/hello.git",
		"link": "https://git.example/octo/hello", "default_branch": "main", "private": false, "visibility": "public",
		"trusted": false, "timeout": 60, "secret": "a-secret-of-the-repo-of-32-bytes",
	}
	maps.Copy(repo, b.submitted.Repository)
	out := object{
		"build": build, "stage": st.row, "config": object{"Data": []byte(b.submitted.Config), "Hash": ""}, "netrc": nil,
		"repository": repo, "secrets": nil,
		"system": object{"proto": "https", "host": "drone.example", "link": "https://drone.example", "version": "2.0.0"},
	}
	if n := b.submitted.Netrc; n != nil {
		out["netrc"] = object{"machine": n[0], "login": n[1], "password": n[2]}
	}
	var secrets []object
	for i, name := range slices.Sorted(maps.Keys(b.submitted.Secrets)) {
		secrets = append(secrets, object{"id": i + 1, "repo_id": 1, "name": name, "data": b.submitted.Secrets[name]})
	}
	if secrets != nil {
		out["secrets"] = secrets
	}
	answer(w, out)
}

// body decodes the body of an update.
func body(w http.ResponseWriter, r *http.Request) (object, bool) {
	var in object
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, false
	}
	return in, true
}

// updateStage replaces a stage. While it is pending or running, the call creates its steps.
func (s *Server) updateStage(w http.ResponseWriter, r *http.Request) {
	in, ok := body(w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stages[in.int("id")]
	switch {
	case st == nil:
		fail(w, noRows)
		return
	case in.int("version") != st.row.int("version"):
		fail(w, conflict)
		return
	}
	list, _ := in["steps"].([]any)
	begins := in.text("status") == "pending" || in.text("status") == "running"
	delete(in, "steps")
	for _, name := range []string{"id", "repo_id", "build_id", "number"} {
		in[name] = st.row[name]
	}
	in["updated"] = unix()
	if final(in.text("status")) {
		st.ends++
	}
	if labels, ok := st.row["labels"]; ok {
		in["labels"] = labels
	}
	version := st.row["version"]
	st.row = in
	st.row["version"] = version
	st.set(nil)
	out := maps.Clone(st.row)
	var created []object
	for _, v := range list {
		step, _ := v.(map[string]any)
		row, refused := s.putStep(st, step, begins)
		if refused != "" {
			fail(w, refused)
			return
		}
		created = append(created, row)
	}
	if list != nil {
		out["steps"] = created
	}
	if begins && st.build.row.text("status") == "pending" {
		st.build.row["status"] = "running"
	}
	s.endBuild(st.build)
	s.notify()
	answer(w, out)
}

// putStep creates a step of a stage that begins, and updates one of a stage that ends.
func (s *Server) putStep(st *stageRow, in object, create bool) (row object, refused string) {
	if !create {
		step := s.steps[in.int("id")]
		if step == nil || step.row.int("version") != in.int("version") {
			return nil, conflict
		}
		step.update(in)
		return step.row, ""
	}
	for _, other := range st.steps {
		if other.row.int("number") == in.int("number") {
			return nil, duplicate + "steps.step_stage_id, steps.step_number"
		}
	}
	s.lastID++
	step := &stepRow{id: s.lastID, stage: st, row: in}
	step.row["id"], step.row["step_id"], step.row["version"] = step.id, st.id, int64(1)
	s.steps[step.id] = step
	st.steps = append(st.steps, step)
	return step.row, ""
}

func (r *stepRow) update(in object) {
	version := r.row["version"]
	in["id"], in["step_id"], in["number"] = r.id, r.stage.id, r.row["number"]
	r.row = in
	r.row["version"] = version
	r.set(nil)
	if final(in.text("status")) {
		r.ends++
	}
}

// endBuild ends a build whose stages have ended.
func (s *Server) endBuild(b *buildRow) {
	if final(b.row.text("status")) {
		return
	}
	status := "success"
	for _, st := range b.stages {
		switch one := st.row.text("status"); {
		case !final(one):
			return
		case one != "success" && one != "skipped":
			status = one
		}
	}
	b.row["status"] = status
}

func (s *Server) updateStep(w http.ResponseWriter, r *http.Request) {
	in, ok := body(w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	step := s.steps[in.int("id")]
	switch {
	case (step == nil || in.int("version") != step.row.int("version")) && final(in.text("status")):
		fail(w, "1 error occurred:\n\t* "+conflict+"\n\n") // as the real server: status 500
		return
	case step == nil, in.int("version") != step.row.int("version"):
		fail(w, conflict)
		return
	}
	step.update(in)
	step.stream = !final(in.text("status"))
	s.notify()
	answer(w, step.row)
}

// watch reports a cancellation that comes while the call is held.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	cancelled := make(chan struct{})
	s.mu.Lock()
	s.watchers[id(r)] = append(s.watchers[id(r)], cancelled)
	restart := s.restart
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watchers[id(r)] = slices.DeleteFunc(s.watchers[id(r)], func(c chan struct{}) bool { return c == cancelled })
	}()
	end := time.NewTimer(s.hold())
	defer end.Stop()
	select {
	case <-cancelled:
		w.WriteHeader(http.StatusOK)
	case <-end.C:
		w.WriteHeader(http.StatusNoContent)
	case <-restart:
		panic(http.ErrAbortHandler)
	case <-r.Context().Done():
	}
}

func (s *Server) batch(w http.ResponseWriter, r *http.Request) {
	var lines []Line
	if err := json.NewDecoder(r.Body).Decode(&lines); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	step := s.steps[id(r)]
	if step == nil || !step.stream {
		fail(w, "stream: not found")
		return
	}
	step.live = append(step.live, lines...)
	s.notify()
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	lines := []Line{}
	if err := json.NewDecoder(r.Body).Decode(&lines); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	step := s.steps[id(r)]
	switch {
	case step == nil:
		fail(w, noRows)
		return
	case step.uploaded:
		fail(w, duplicate+"logs.log_id")
		return
	}
	step.log, step.uploaded = lines, true
	s.notify()
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) card(w http.ResponseWriter, r *http.Request) {
	if s.NoCards {
		http.NotFound(w, r)
		return
	}
	in, ok := body(w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cards[id(r)], _ = json.Marshal(in["data"])
	w.WriteHeader(http.StatusNoContent)
}
