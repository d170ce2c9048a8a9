package ec2

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/delegate-io/dlite/driver/vm"
)

// request returns the request for a machine in the nth subnet. The client token includes the
// subnet, because a token belongs to one request.
func (p *ec2Provider) request(spec vm.Spec, userData, device string, n int) *ec2.RunInstancesInput {
	c := &p.cfg
	in := &ec2.RunInstancesInput{
		ClientToken: aws.String(fmt.Sprintf("%s-%d", spec.ID, n)),
		MinCount:    aws.Int32(1), MaxCount: aws.Int32(1),
		ImageId: text(c.AMI), InstanceType: types.InstanceType(c.InstanceType), KeyName: text(c.KeyName),
		UserData:                          aws.String(userData),
		InstanceInitiatedShutdownBehavior: types.ShutdownBehaviorTerminate,
		MetadataOptions: &types.InstanceMetadataOptionsRequest{
			HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: aws.Int32(1),
			HttpEndpoint: types.InstanceMetadataEndpointStateEnabled, // cloud-init reads the user data there
		},
	}
	if l := c.LaunchTemplate; l.set() {
		in.LaunchTemplate = &types.LaunchTemplateSpecification{LaunchTemplateId: text(l.ID), LaunchTemplateName: text(l.Name), Version: text(l.Version)}
	}
	switch {
	case strings.HasPrefix(c.InstanceProfile, "arn:"):
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Arn: aws.String(c.InstanceProfile)}
	case c.InstanceProfile != "":
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: aws.String(c.InstanceProfile)}
	}
	if subnet := c.SubnetIDs[n]; subnet != "" || len(c.SecurityGroupIDs) > 0 || c.PublicAddress {
		in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{
			DeviceIndex: aws.Int32(0), SubnetId: text(subnet), Groups: c.SecurityGroupIDs,
			AssociatePublicIpAddress: aws.Bool(c.PublicAddress), DeleteOnTermination: aws.Bool(true),
		}}
	}
	if v := c.RootVolume; v.set() {
		ebs := &types.EbsBlockDevice{
			DeleteOnTermination: aws.Bool(true), VolumeType: types.VolumeType(v.Type),
			VolumeSize: number(v.SizeGiB), Iops: number(v.IOPS), Throughput: number(v.ThroughputMiBs), KmsKeyId: text(v.KMSKeyID),
		}
		if !v.Unencrypted {
			ebs.Encrypted = aws.Bool(true)
		}
		in.BlockDeviceMappings = []types.BlockDeviceMapping{{DeviceName: aws.String(device), Ebs: ebs}}
	}
	tagged := []types.ResourceType{types.ResourceTypeInstance, types.ResourceTypeVolume, types.ResourceTypeNetworkInterface}
	if c.Spot {
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot, SpotOptions: &types.SpotMarketOptions{
			SpotInstanceType: types.SpotInstanceTypeOneTime, MaxPrice: text(c.SpotMaxPrice),
			InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate,
		}}
		tagged = append(tagged, types.ResourceTypeSpotInstancesRequest)
	}
	tags := p.tags(spec)
	for _, t := range tagged {
		in.TagSpecifications = append(in.TagSpecifications, types.TagSpecification{ResourceType: t, Tags: tags})
	}
	if c.Adjust != nil {
		c.Adjust(in)
	}
	return in
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func number(n int32) *int32 {
	if n == 0 {
		return nil
	}
	return &n
}

// maxTags is EC2's limit of tags for a resource.
const maxTags = 50

// tags returns a machine's tags, sorted, because repeated requests must be equal. Labels come from
// tasks, so tags ignores those that EC2 would reject.
func (p *ec2Provider) tags(spec vm.Spec) []types.Tag {
	all := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(spec.Labels)) {
		if v := spec.Labels[k]; validTag(k, v) && len(all) < maxTags-3-len(p.cfg.Tags) {
			all[k] = v
		}
	}
	if _, ok := all["Name"]; !ok {
		all["Name"] = spec.ID
	}
	maps.Copy(all, p.cfg.Tags)
	all[tagID], all[tagOwner] = spec.ID, spec.Owner
	var tags []types.Tag
	for _, k := range slices.Sorted(maps.Keys(all)) {
		tags = append(tags, types.Tag{Key: aws.String(k), Value: aws.String(all[k])})
	}
	return tags
}

// validTag checks EC2's rules, with the characters that all services accept.
func validTag(key, value string) bool {
	known := func(s string) bool {
		return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
			return r < 0x80 && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(" _.:/=+-@", r)
		})
	}
	return key != "" && !strings.HasPrefix(strings.ToLower(key), "aws:") &&
		utf8.RuneCountInString(key) <= 128 && utf8.RuneCountInString(value) <= 256 && known(key) && known(value)
}

// device caches the name of an image's first disk, which never changes.
type device struct {
	mu   sync.Mutex
	name string // guarded by mu
}

func (d *device) is(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.name = name
}

func (d *device) known() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.name
}

// rootDevice returns the name of the first disk, if the request needs it.
func (p *ec2Provider) rootDevice(ctx context.Context) (string, error) {
	v := p.cfg.RootVolume
	if name := p.root.known(); !v.set() || v.Device != "" || name != "" {
		return v.Device + name, nil
	}
	var out *ec2.DescribeImagesOutput
	err := p.call(ctx, func(ctx context.Context) (err error) {
		out, err = p.cfg.Client.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{p.cfg.AMI}}, retryPolicy)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("describe the image %s: %w", p.cfg.AMI, err)
	}
	for _, i := range out.Images {
		if name := aws.ToString(i.RootDeviceName); name != "" {
			p.root.is(name)
			return name, nil
		}
	}
	return "", errors.New("the image " + p.cfg.AMI + " has no root device that can be changed")
}
