package endtoend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// The accounts of the arena.
const (
	preyAccount = "victim"
	hostile     = "hostile"
)

// arena is a bundled manager with two accounts, and a bundled delegate for each.
type arena struct {
	t       *testing.T
	dir     string
	url     string // of the manager
	metrics map[string]string
	tokens  map[string]string
	manager *exec.Cmd
	http    *http.Client

	held     api.Stage   // a stage of the victim that runs all the time
	heldKey  string      // the key of its step's log
	heldTask string      // the task of its step
	delegate string      // the victim's delegate
	streams  []io.Closer // open event streams of the hostile account
}

// attackKind is one way to attack. A try returns a description of its success, or an empty string.
type attackKind struct {
	name string
	try  func(a *arena, i int) string
}

// attackTries is the number of tries of each kind.
func attackTries(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("DLITE_ATTACK_TRIES"))
	if err != nil {
		return 10
	}
	return n
}

// Rules B1 to B5: a hostile account, a hostile step and a hostile network reach nothing that belongs to
// others, and do not stop it. The test prints each kind with its tries and those that were accepted.
func TestHostileCallersReachNothingOfOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	a := newArena(t)
	calm := a.measureVictim(40, nil)
	kinds := slices.Concat(accountAttacks(), boundAttacks(), networkAttacks())
	under := make(chan victimTimes, 1)
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() { under <- a.measureVictim(1<<20, stop) })
	release := a.holdConnections()
	total, accepted := 0, 0
	for _, kind := range kinds {
		reached, begin := 0, time.Now()
		for i := range attackTries(t) {
			if what := kind.try(a, i); what != "" {
				reached++
				t.Errorf("%s, try %d: %s", kind.name, i, what)
			}
		}
		t.Logf("%-45s %3d tries, %d accepted, %s", kind.name, attackTries(t), reached, time.Since(begin).Round(time.Millisecond))
		total, accepted = total+attackTries(t), accepted+reached
	}
	for _, r := range a.stepAttacks() {
		total++
		if r.reached {
			accepted++
			t.Errorf("a step: %s", r.name)
		}
		t.Logf("step: %-39s   1 try,  reached: %v", r.name, r.reached)
	}
	close(stop)
	work.Wait()
	release()
	attacked := <-under
	t.Logf("%d kinds, %d tries, %d accepted", len(kinds)+1, total, accepted)
	t.Logf("the victim's stages, calm:         %s", calm)
	t.Logf("the victim's stages, under attack: %s", attacked)
	assert.Positive(t, attacked.stages, "the victim's work must continue")
	peak := a.memory("VmHWM")
	t.Logf("peak memory of the manager: %d MiB", peak>>20)
	assert.Less(t, peak, int64(768<<20), "the budgets of the arena allow 64 MiB of requests and 64 MiB of bodies; a body takes several times its size while it is read")
	a.endHeld()
	t.Logf("the manager answered %.1f s after kill -9", a.restartManager().Seconds())
}

func newArena(t *testing.T) *arena {
	t.Helper()
	a := &arena{t: t, dir: t.TempDir(), metrics: map[string]string{}, tokens: map[string]string{}, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}, Timeout: time.Minute}}
	t.Cleanup(a.http.CloseIdleConnections)
	testbed.Keep(t, a.dir)
	for _, name := range []string{"manager", "delegate"} {
		require.NoError(t, os.Rename(testbed.BuildStatic(t, "./examples/"+name), filepath.Join(a.dir, name)))
	}
	secrets := map[string]string{preyAccount: "00c0ffee00c0ffee" + randomHex(), hostile: "0badcafe0badcafe" + randomHex()}
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "manager.env"),
		[]byte("ACCOUNTS=victim="+secrets[preyAccount]+",hostile="+secrets[hostile]+"\n"), 0o600))
	a.url = "http://127.0.0.1:" + freePort(t)
	a.startManager()
	for account := range secrets {
		token, err := exec.CommandContext(t.Context(), filepath.Join(a.dir, "manager"), "token", account, "--env-file", filepath.Join(a.dir, "manager.env")).Output() //nolint:gosec // our program
		require.NoError(t, err)
		a.tokens[account] = strings.TrimSpace(string(token))
		a.startDelegate(account, secrets[account])
	}
	a.delegate = a.delegateOf(preyAccount)
	a.delegateOf(hostile)
	a.holdStage()
	return a
}

// startManager starts the manager with small budgets.
func (a *arena) startManager() {
	m := program(a.t, filepath.Join(a.dir, "manager"), "server", "--listen", strings.TrimPrefix(a.url, "http://"), "--http-bind", "off",
		"--data-dir", filepath.Join(a.dir, "data"), "--env-file", filepath.Join(a.dir, "manager.env"), "--log-level", "error",
		"--account-budget", "works=500,bytes=32MiB,holds=100,streams=20", "--total-budget", "works=2000,bytes=64MiB,holds=1000,streams=100")
	r, w := io.Pipe()
	m.Stdout, m.Stderr = w, os.Stderr
	require.NoError(a.t, m.Start())
	a.manager = m
	lines := bufio.NewScanner(r)
	require.True(a.t, lines.Scan(), "the manager does not start")
	go func() { _, _ = io.Copy(io.Discard, r) }()
	a.t.Cleanup(func() {
		if m.ProcessState == nil {
			_ = m.Process.Signal(os.Interrupt)
			assert.NoError(a.t, m.Wait())
		}
		_ = w.Close()
	})
}

func (a *arena) startDelegate(account, secret string) {
	config := filepath.Join(a.dir, account+".env")
	a.metrics[account] = "127.0.0.1:" + freePort(a.t)
	require.NoError(a.t, os.WriteFile(config, fmt.Appendf(nil, "ACCOUNT_ID=%s\nTOKEN=%s\nURL=%s\nNAME=%s\nWORK_DIR=%s\nLEDGER_DIR=%s\nHTTP_BIND=%s\nLOG_LEVEL=error\n",
		account, secret, a.url, account, filepath.Join(a.dir, "work-"+account), filepath.Join(a.dir, "ledger-"+account), a.metrics[account]), 0o600))
	d := program(a.t, filepath.Join(a.dir, "delegate"), "server", "--env-file", config)
	d.Stderr = os.Stderr
	require.NoError(a.t, d.Start())
	a.t.Cleanup(func() {
		_ = d.Process.Signal(os.Interrupt)
		late := time.AfterFunc(time.Minute, func() { _ = d.Process.Kill() })
		assert.NoError(a.t, d.Wait(), account)
		late.Stop()
	})
}

// delegateOf waits for the registration of an account's delegate.
func (a *arena) delegateOf(account string) string {
	var list struct{ Delegates []api.Delegate }
	require.Eventually(a.t, func() bool {
		_, body := a.do(account, http.MethodGet, "/api/delegates?accountId="+account, "")
		return json.Unmarshal([]byte(body), &list) == nil && len(list.Delegates) > 0
	}, time.Minute, 50*time.Millisecond, "the delegate has not registered")
	return list.Delegates[0].ID
}

// do calls the manager with an account's token.
func (a *arena) do(account, method, path, body string) (int, string) {
	return a.call(a.tokens[account], method, path, strings.NewReader(body), nil)
}

func (a *arena) call(token, method, path string, body io.Reader, header http.Header) (int, string) {
	address := path
	if !strings.HasPrefix(address, "http") {
		address = a.url + path
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return 0, err.Error()
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("X-Harness-Token", token)
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(b)
}

// followEvents opens an event stream of the hostile account until the end, and returns the status.
func (a *arena) followEvents() int {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, a.url+"/api/events?accountId=hostile", nil)
	require.NoError(a.t, err)
	req.Header.Set("Authorization", "Bearer "+a.tokens[hostile])
	resp, err := (&http.Transport{}).RoundTrip(req) //nolint:bodyclose // at the end of the attacks
	if err != nil {
		return 0
	}
	a.streams = append(a.streams, resp.Body)
	return resp.StatusCode
}

// holdStage starts the stage of the victim that the attackers aim at.
func (a *arena) holdStage() {
	request := `{"id":"held","init":{"secrets":["` + heldSecret + `"],"envs":{"HELD":"` + heldSecret + `"}},"steps":[{"id":"wait","data":{"run":{"entrypoint":["sh","-c"],
		"commands":["echo here; pwd; while [ ! -e go ]; do sleep 0.2; done"]}}}]}`
	status, body := a.do(preyAccount, http.MethodPost, "/api/stages?accountId=victim", request)
	require.Equal(a.t, http.StatusAccepted, status, body)
	require.Eventually(a.t, func() bool {
		_, body = a.do(preyAccount, http.MethodGet, "/api/stages/held?accountId=victim", "")
		return json.Unmarshal([]byte(body), &a.held) == nil && len(a.held.Steps) == 1 && a.held.Steps[0].Status == api.Running
	}, time.Minute, 50*time.Millisecond, "%s", body)
	a.heldKey, a.heldTask = a.held.Steps[0].LogKey, a.held.Steps[0].TaskID
}

// endHeld checks that the attacks have not reached the victim's stage.
func (a *arena) endHeld() {
	_, body := a.do(preyAccount, http.MethodGet, "/api/stages/held?accountId=victim", "")
	var st api.Stage
	require.NoError(a.t, json.Unmarshal([]byte(body), &st))
	assert.Equal(a.t, api.Running, st.Steps[0].Status, "an attack ended the victim's step")
	status, body := a.do(preyAccount, http.MethodPost, "/api/stages/held/abort?accountId=victim", "")
	assert.Equal(a.t, http.StatusOK, status, body)
	_, _ = a.do(preyAccount, http.MethodGet, "/api/stages/held?accountId=victim&wait=60", "")
}

// memory returns a value of the manager's /proc/PID/status, in bytes.
func (a *arena) memory(name string) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.manager.Process.Pid))
	require.NoError(a.t, err)
	_, rest, _ := strings.Cut(string(b), name+":")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	require.NoError(a.t, err)
	return kb << 10
}

// restartManager kills the manager and returns how long the next one took to answer.
func (a *arena) restartManager() time.Duration {
	require.NoError(a.t, a.manager.Process.Kill())
	_ = a.manager.Wait()
	begin := time.Now()
	a.startManager()
	require.Eventually(a.t, func() bool {
		status, _ := a.do(preyAccount, http.MethodGet, "/api/stages/held?accountId=victim", "")
		return status == http.StatusOK
	}, time.Minute, 10*time.Millisecond)
	return time.Since(begin)
}

// victimTimes are the times of the victim's stages: until a stage is picked up, and until its log can be read.
type victimTimes struct {
	stages       int
	pickups, log []time.Duration
}

func (v victimTimes) String() string {
	at := func(all []time.Duration, share float64) time.Duration {
		if len(all) == 0 {
			return 0
		}
		slices.Sort(all)
		return all[int(share*float64(len(all)-1))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d stages; pick-up p50 %s, p99 %s; submission to archived log p50 %s, p99 %s",
		v.stages, at(v.pickups, 0.5), at(v.pickups, 0.99), at(v.log, 0.5), at(v.log, 0.99))
}

// measureVictim runs stages of the victim one after the other.
func (a *arena) measureVictim(most int, stop <-chan struct{}) (v victimTimes) {
	for range most {
		select {
		case <-stop:
			return v
		default:
		}
		begin := time.Now()
		_, body := a.do(preyAccount, http.MethodPost, "/api/stages?accountId=victim",
			`{"steps":[{"id":"one","data":{"run":{"entrypoint":["sh","-c"],"commands":["echo tick"]}}}]}`)
		var st api.Stage
		if err := json.Unmarshal([]byte(body), &st); err != nil || st.ID == "" {
			a.t.Errorf("the victim cannot submit: %s", body)
			return v
		}
		_, body = a.do(preyAccount, http.MethodGet, "/api/stages/"+st.ID+"?accountId=victim&wait=60", "")
		if err := json.Unmarshal([]byte(body), &st); err != nil || st.Status != api.Success {
			a.t.Errorf("a stage of the victim: %s", body)
			return v
		}
		if _, text := a.do(preyAccount, http.MethodGet, "/blob?accountID=victim&format=text&key="+st.Steps[0].LogKey, ""); text != "tick\n" {
			a.t.Errorf("the log of a stage of the victim: %q", text)
		}
		v.stages++
		v.log = append(v.log, time.Since(begin))
		v.pickups = append(v.pickups, st.StartedAt.Sub(st.SubmittedAt))
	}
	return v
}

// holdConnections opens connections of the hostile account that send nothing, or stop in the middle.
func (a *arena) holdConnections() (release func()) {
	address := strings.TrimPrefix(a.url, "http://")
	var open []net.Conn
	for i := range 200 {
		c, err := net.Dial("tcp", address) //nolint:noctx // loopback
		if err != nil {
			continue
		}
		open = append(open, c)
		start := []string{
			"",
			"GET /api/stages?accountId=hostile HTTP/1.1\r\nHost: x\r\nX-Slow: ",
			"PUT /stream?accountID=hostile&key=hold" + strconv.Itoa(i) + " HTTP/1.1\r\nHost: x\r\nX-Harness-Token: " + a.tokens[hostile] + "\r\nContent-Length: 1000000\r\n\r\n[",
			"POST /api/stages?accountId=hostile HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + a.tokens[hostile] + "\r\nContent-Length: 30000000\r\n\r\n{",
		}[i%4]
		_, _ = io.WriteString(c, start)
	}
	return func() {
		for _, c := range open {
			_ = c.Close()
		}
		for _, s := range a.streams {
			_ = s.Close()
		}
	}
}
