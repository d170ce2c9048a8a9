package ec2_test

import (
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
)

// cloud simulates EC2's Query API as documented, for the calls of the provider: requests are
// forms, answers are XML. Its time advances with each query for an instance.
type cloud struct {
	*httptest.Server
	tb testing.TB

	// The tests set these fields before use.
	hidden     int                       // number of queries in which a new instance does not appear
	pending    int                       // then the number of queries in which it is pending
	stale      int                       // number of queries in which it still runs after its end
	page       int                       // largest page
	full       map[string]string         // subnet: error code
	launch     func(*instance)           // starts the process of the instance
	volumes    func(*instance) []*volume // volumes of the image; nil means one that is deleted with the instance
	fail       func(action string, call int) (status int, code string)
	loseAnswer func(action string, call int) bool

	mu        sync.Mutex
	calls     map[string]int // by action
	forms     map[string][]url.Values
	instances []*instance
	tokens    map[string]*instance
}

type volume struct {
	id, device string
	goes       bool // by instance
	foreign    bool // another user has attached it
	gone       bool
}

type instance struct {
	id, state, reason, token, address, public, itype, lifecycle, key string
	subnet                                                           string
	tags                                                             map[string]string
	launched                                                         time.Time
	hidden, pending, stale, ending                                   int
	volumes                                                          []*volume
	userData                                                         []byte
	form                                                             url.Values
	end                                                              func()
}

func newCloud(tb testing.TB) *cloud {
	tb.Helper()
	c := &cloud{tb: tb, page: 1000, calls: map[string]int{}, forms: map[string][]url.Values{}, tokens: map[string]*instance{}, full: map[string]string{}}
	c.Server = httptest.NewServer(c)
	tb.Cleanup(func() {
		c.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, i := range c.instances {
			i.stop()
		}
	})
	return c
}

// client returns a client of the SDK that uses the cloud.
func (c *cloud) client(options ...func(*awsec2.Options)) *awsec2.Client {
	hc := &http.Client{Transport: &http.Transport{}}
	c.tb.Cleanup(hc.CloseIdleConnections)
	return awsec2.New(awsec2.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(c.URL), HTTPClient: hc,
		Credentials: credentials.NewStaticCredentialsProvider("AKIDVISIBLYFAKE", "visibly-fake-secret", ""),
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Millisecond, nil })
		}),
	}, options...)
}

// signed matches a signature: its scope and the signed headers.
var signed = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=AKIDVISIBLYFAKE/\d{8}/eu-central-1/ec2/aws4_request, SignedHeaders=[a-z0-9;-]*host[a-z0-9;-]*x-amz-date[a-z0-9;-]*, Signature=[0-9a-f]{64}$`)

type fault struct {
	status        int
	code, message string
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !signed.MatchString(r.Header.Get("Authorization")) {
		answerFault(w, &fault{401, "AuthFailure", "no valid signature: " + r.Header.Get("Authorization")})
		return
	}
	if err := r.ParseForm(); err != nil || r.Method != http.MethodPost || r.PostForm.Get("Version") != "2016-11-15" {
		answerFault(w, &fault{400, "InvalidParameterValue", "no call of this API"})
		return
	}
	form, action := r.PostForm, r.PostForm.Get("Action")
	c.mu.Lock()
	c.calls[action]++
	call := c.calls[action]
	c.forms[action] = append(c.forms[action], form)
	var body any
	var wrong *fault
	if c.fail != nil {
		if status, code := c.fail(action, call); code != "" {
			wrong = &fault{status, code, "told to"}
		}
	}
	if wrong == nil {
		body, wrong = c.act(action, form)
	}
	lost := c.loseAnswer != nil && c.loseAnswer(action, call)
	c.mu.Unlock()
	switch {
	case lost:
		panic(http.ErrAbortHandler)
	case wrong != nil:
		answerFault(w, wrong)
	default:
		answerXML(w, http.StatusOK, body)
	}
}

func answerXML(w http.ResponseWriter, status int, body any) {
	b, err := xml.Marshal(body)
	if err != nil {
		status, b = 500, []byte(err.Error())
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(append([]byte(xml.Header), b...))
}

func answerFault(w http.ResponseWriter, f *fault) {
	type item struct {
		Code, Message string
	}
	answerXML(w, f.status, struct {
		XMLName   xml.Name `xml:"Response"`
		Errors    []item   `xml:"Errors>Error"`
		RequestID string   `xml:"RequestID"`
	}{Errors: []item{{f.code, f.message}}, RequestID: "r-1"})
}

// The caller of act holds mu.
func (c *cloud) act(action string, form url.Values) (any, *fault) {
	switch action {
	case "RunInstances":
		return c.run(form)
	case "DescribeInstances":
		return c.describe(form)
	case "TerminateInstances":
		return c.terminate(form)
	case "DescribeVolumes":
		return c.describeVolumes(form)
	case "ModifyInstanceAttribute":
		return c.modify(form)
	case "DescribeImages":
		type image struct {
			ID   string `xml:"imageId"`
			Root string `xml:"rootDeviceName"`
		}
		return struct {
			XMLName xml.Name `xml:"DescribeImagesResponse"`
			Images  []image  `xml:"imagesSet>item"`
		}{Images: []image{{form.Get("ImageId.1"), "/dev/xvda"}}}, nil
	}
	return nil, &fault{400, "InvalidAction", action}
}

func (c *cloud) run(form url.Values) (any, *fault) {
	token := form.Get("ClientToken")
	switch {
	case form.Get("ImageId") == "" && form.Get("LaunchTemplate.LaunchTemplateId") == "" && form.Get("LaunchTemplate.LaunchTemplateName") == "":
		return nil, &fault{400, "MissingParameter", "ImageId"}
	case form.Get("MinCount") != "1" || form.Get("MaxCount") != "1" || len(token) == 0 || len(token) > 64:
		return nil, &fault{400, "InvalidParameterValue", "counts or token"}
	}
	i := c.tokens[token]
	if i != nil && i.form.Encode() != form.Encode() {
		return nil, &fault{400, "IdempotentParameterMismatch", "the token was used for another request"}
	}
	if i == nil {
		subnet := form.Get("NetworkInterface.1.SubnetId")
		if code := c.full[subnet]; code != "" {
			return nil, &fault{500, code, "We currently do not have sufficient capacity in " + subnet}
		}
		data, err := base64.StdEncoding.DecodeString(form.Get("UserData"))
		if err != nil || len(data) > 16<<10 {
			return nil, &fault{400, "InvalidUserData.Malformed", "not valid"}
		}
		n := len(c.instances) + 1
		i = &instance{
			id: fmt.Sprintf("i-%017x", n), state: "pending", token: token, itype: form.Get("InstanceType"), subnet: subnet,
			address: fmt.Sprintf("127.88.%d.%d", n/250, n%250+1), tags: tagsOf(form, "instance"), launched: time.Now(),
			hidden: c.hidden, pending: c.pending, stale: c.stale, ending: 1, userData: data, form: form, key: form.Get("KeyName"),
		}
		if form.Get("NetworkInterface.1.AssociatePublicIpAddress") == "true" {
			i.public = fmt.Sprintf("127.99.%d.%d", n/250, n%250+1)
		}
		if form.Get("InstanceMarketOptions.MarketType") == "spot" {
			i.lifecycle = "spot"
		}
		i.volumes = []*volume{{id: "vol-" + i.id, device: "/dev/xvda", goes: true}}
		if c.volumes != nil {
			i.volumes = c.volumes(i)
		}
		c.instances, c.tokens[token] = append(c.instances, i), i
		if c.launch != nil {
			c.launch(i)
		}
	}
	return struct {
		XMLName   xml.Name      `xml:"RunInstancesResponse"`
		Instances []instanceXML `xml:"instancesSet>item"`
	}{Instances: []instanceXML{i.xml()}}, nil
}

// tagsOf reads the tags of a request for a resource type.
func tagsOf(form url.Values, kind string) map[string]string {
	for n := 1; ; n++ {
		at := fmt.Sprintf("TagSpecification.%d.", n)
		switch form.Get(at + "ResourceType") {
		case "":
			return map[string]string{}
		case kind:
			tags := map[string]string{}
			for k := 1; form.Has(fmt.Sprintf("%sTag.%d.Key", at, k)); k++ {
				tags[form.Get(fmt.Sprintf("%sTag.%d.Key", at, k))] = form.Get(fmt.Sprintf("%sTag.%d.Value", at, k))
			}
			return tags
		}
	}
}

// filters reads the filters of a request.
func filters(form url.Values) map[string][]string {
	all := map[string][]string{}
	for n := 1; form.Has(fmt.Sprintf("Filter.%d.Name", n)); n++ {
		name := form.Get(fmt.Sprintf("Filter.%d.Name", n))
		for k := 1; form.Has(fmt.Sprintf("Filter.%d.Value.%d", n, k)); k++ {
			all[name] = append(all[name], form.Get(fmt.Sprintf("Filter.%d.Value.%d", n, k)))
		}
	}
	return all
}

func (c *cloud) describe(form url.Values) (any, *fault) {
	if form.Has("InstanceId.1") && form.Has("MaxResults") {
		return nil, &fault{400, "InvalidParameterCombination", "ids and MaxResults"}
	}
	var found []*instance
	for _, i := range c.instances {
		matches := true
		for name, values := range filters(form) {
			var has string
			if key, ok := strings.CutPrefix(name, "tag:"); ok {
				has = i.tags[key]
			} else if name == "instance-state-name" {
				has = i.shown()
			} else {
				return nil, &fault{400, "InvalidParameterValue", "filter " + name}
			}
			matches = matches && slices.Contains(values, has)
		}
		if matches && i.query() {
			found = append(found, i)
		}
	}
	from, _ := strconv.Atoi(form.Get("NextToken"))
	size := len(found)
	if form.Has("MaxResults") {
		size, _ = strconv.Atoi(form.Get("MaxResults"))
		if size < 5 || size > 1000 {
			return nil, &fault{400, "InvalidParameterValue", "MaxResults"}
		}
		size = min(size, c.page)
	}
	to := min(from+size, len(found))
	next := ""
	if to < len(found) {
		next = strconv.Itoa(to)
	}
	type reservation struct {
		Instances []instanceXML `xml:"instancesSet>item"`
	}
	var list []reservation
	for _, i := range found[from:to] {
		list = append(list, reservation{[]instanceXML{i.xml()}})
	}
	return struct {
		XMLName      xml.Name      `xml:"DescribeInstancesResponse"`
		Reservations []reservation `xml:"reservationSet>item"`
		Next         string        `xml:"nextToken,omitempty"`
	}{Reservations: list, Next: next}, nil
}

// query advances the time of an instance and reports whether it appears in answers.
func (i *instance) query() bool {
	if i.hidden > 0 {
		i.hidden--
		return false
	}
	switch {
	case i.state == "pending" && i.pending > 0:
		i.pending--
	case i.state == "pending":
		i.state = "running"
	case i.state == "shutting-down" && i.stale > 0:
		i.stale--
	case i.state == "shutting-down" && i.ending > 0:
		i.ending--
	case i.state == "shutting-down":
		i.state = "terminated"
	}
	return true
}

// shown is the state that EC2 reports, possibly an old one.
func (i *instance) shown() string {
	if i.state == "shutting-down" && i.stale > 0 {
		return "running"
	}
	return i.state
}

func (i *instance) stop() {
	if i.end != nil {
		i.end()
		i.end = nil
	}
}

func (c *cloud) terminate(form url.Values) (any, *fault) {
	for _, i := range c.instances {
		if i.id != form.Get("InstanceId.1") {
			continue
		}
		if i.state != "terminated" {
			i.state = "shutting-down"
			i.stop()
			for _, v := range i.volumes {
				v.gone = v.goes
			}
		}
		return struct {
			XMLName xml.Name `xml:"TerminateInstancesResponse"`
			ID      string   `xml:"instancesSet>item>instanceId"`
			Now     string   `xml:"instancesSet>item>currentState>name"`
		}{ID: i.id, Now: i.state}, nil
	}
	return nil, &fault{400, "InvalidInstanceID.NotFound", "it does not exist"}
}

func (c *cloud) describeVolumes(form url.Values) (any, *fault) {
	type vol struct {
		ID string `xml:"volumeId"`
	}
	var list []vol
	for _, i := range c.instances {
		for _, v := range i.volumes {
			if !v.foreign && slices.Contains(filters(form)["tag:dlite-id"], tagsOf(i.form, "volume")["dlite-id"]) {
				list = append(list, vol{v.id})
			}
		}
	}
	return struct {
		XMLName xml.Name `xml:"DescribeVolumesResponse"`
		Volumes []vol    `xml:"volumeSet>item"`
	}{Volumes: list}, nil
}

func (c *cloud) modify(form url.Values) (any, *fault) {
	for _, i := range c.instances {
		for n := 1; i.id == form.Get("InstanceId"); n++ {
			at := fmt.Sprintf("BlockDeviceMapping.%d.", n)
			if !form.Has(at + "DeviceName") {
				return struct {
					XMLName xml.Name `xml:"ModifyInstanceAttributeResponse"`
					Return  bool     `xml:"return"`
				}{Return: true}, nil
			}
			for _, v := range i.volumes {
				if v.device == form.Get(at+"DeviceName") {
					v.goes = form.Get(at+"Ebs.DeleteOnTermination") == "true"
				}
			}
		}
	}
	return nil, &fault{400, "InvalidInstanceID.NotFound", "it does not exist"}
}

type instanceXML struct {
	ID        string      `xml:"instanceId"`
	State     string      `xml:"instanceState>name"`
	Reason    string      `xml:"stateReason>message,omitempty"`
	Token     string      `xml:"clientToken"`
	Private   string      `xml:"privateIpAddress,omitempty"`
	Public    string      `xml:"ipAddress,omitempty"`
	Type      string      `xml:"instanceType"`
	Lifecycle string      `xml:"instanceLifecycle,omitempty"`
	Zone      string      `xml:"placement>availabilityZone"`
	Launched  string      `xml:"launchTime"`
	Tags      []tagXML    `xml:"tagSet>item"`
	Devices   []deviceXML `xml:"blockDeviceMapping>item"`
}

type tagXML struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type deviceXML struct {
	Name   string `xml:"deviceName"`
	Volume string `xml:"ebs>volumeId"`
	Goes   bool   `xml:"ebs>deleteOnTermination"`
}

func (i *instance) xml() instanceXML {
	x := instanceXML{
		ID: i.id, State: i.shown(), Reason: i.reason, Token: i.token, Private: i.address, Type: i.itype, Lifecycle: i.lifecycle,
		Zone: "eu-central-1a", Launched: i.launched.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	if i.state == "running" {
		x.Public = i.public
	}
	for k, v := range i.tags {
		x.Tags = append(x.Tags, tagXML{k, v})
	}
	if i.state != "pending" {
		for _, v := range i.volumes {
			x.Devices = append(x.Devices, deviceXML{v.device, v.id, v.goes})
		}
	}
	return x
}

// with accesses the state of the cloud.
func (c *cloud) with(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// count returns the number of calls of an action.
func (c *cloud) count(action string) (n int) {
	c.with(func() { n = c.calls[action] })
	return n
}

// left returns the instances and volumes that cost money.
func (c *cloud) left() (left []string) {
	c.with(func() {
		for _, i := range c.instances {
			if i.state == "pending" || i.state == "running" {
				left = append(left, i.id)
				continue
			}
			for _, v := range i.volumes {
				if !v.gone && !v.foreign {
					left = append(left, v.id)
				}
			}
		}
	})
	return left
}
