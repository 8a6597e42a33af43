/*
 * Sets and gets quotas of user 65534, who has a file of 3 MiB on OST 2. Arguments: MNT, then "set"
 * for the superuser, or "get" for that user.
 */
#include "check.h"
#include <time.h>

#define USER 65534
#define MIB (1ULL << 20)

/* Room for the name of a pool. */
static union {
	struct if_quotactl call;
	char room[sizeof(struct if_quotactl) + LOV_MAXPOOLNAME + 1];
} quota;

static struct if_quotactl *of(__u32 cmd, __u32 type, __u32 id)
{
	memset(&quota, 0, sizeof(quota));
	quota.call.qc_cmd = cmd;
	quota.call.qc_type = type;
	quota.call.qc_id = id;
	return &quota.call;
}

static void get(char *mnt)
{
	struct if_quotactl *call = of(LUSTRE_Q_GETQUOTA, USRQUOTA, USER);
	__u64 now;

	CHECK(llapi_quotactl(mnt, call) == 0);
	now = (__u64)time(NULL);
	CHECK(call->qc_dqblk.dqb_curspace == 3 * MIB && call->qc_dqblk.dqb_curinodes == 1);
	CHECK(call->qc_dqblk.dqb_bhardlimit == MIB && call->qc_dqblk.dqb_bsoftlimit == 1024);
	CHECK(call->qc_dqblk.dqb_ihardlimit == 500 && call->qc_dqblk.dqb_isoftlimit == 0);
	CHECK(call->qc_dqblk.dqb_valid == QIF_ALL);
	/* The soft limit of space is exceeded, with a grace time of a day. */
	CHECK(call->qc_dqblk.dqb_btime > now && call->qc_dqblk.dqb_btime <= now + 24 * 3600);
	CHECK(call->qc_dqblk.dqb_itime == 0);

	call = of(LUSTRE_Q_GETQUOTA, USRQUOTA, USER);
	call->qc_valid = QC_OSTIDX;
	call->qc_idx = 2;
	CHECK(llapi_quotactl(mnt, call) == 0 && call->qc_dqblk.dqb_curspace == 3 * MIB);
	CHECK(strcmp(call->obd_uuid.uuid, "quotactl-OST0002_UUID") == 0);
	call->qc_valid = QC_UUID;
	CHECK(llapi_quotactl(mnt, call) == 0 && call->qc_dqblk.dqb_curinodes == 1);
	call->qc_valid = QC_MDTIDX;
	REFUSES(llapi_quotactl(mnt, call), ENODEV);

	call = of(LUSTRE_Q_GETINFO, USRQUOTA, 0);
	CHECK(llapi_quotactl(mnt, call) == 0 && call->qc_dqinfo.dqi_bgrace == 24 * 3600);
	CHECK(call->qc_dqinfo.dqi_igrace == 7 * 24 * 3600);
	call = of(LUSTRE_Q_GETDEFAULT, GRPQUOTA, 0);
	CHECK(llapi_quotactl(mnt, call) == 0 && call->qc_dqblk.dqb_ihardlimit == 900);
	CHECK(call->qc_dqblk.dqb_btime == 7 * 24 * 3600);
	call = of(LUSTRE_Q_GETQUOTA, GRPQUOTA, USER);
	CHECK(llapi_quotactl(mnt, call) == 0 && call->qc_dqblk.dqb_ihardlimit == 900);
	CHECK(LQUOTA_FLAG(call->qc_dqblk.dqb_btime) == LQUOTA_FLAG_DEFAULT);
}

static void set(char *mnt)
{
	struct if_quotactl *call = of(LUSTRE_Q_SETINFO, USRQUOTA, 0);

	call->qc_dqinfo.dqi_bgrace = 24 * 3600;
	call->qc_dqblk.dqb_valid = QIF_BTIME;
	CHECK(llapi_quotactl(mnt, call) == 0);
	call = of(LUSTRE_Q_SETQUOTA, USRQUOTA, USER);
	call->qc_dqblk.dqb_bhardlimit = MIB;
	call->qc_dqblk.dqb_bsoftlimit = 1024;
	call->qc_dqblk.dqb_ihardlimit = 500;
	REFUSES(llapi_quotactl(mnt, call), EINVAL);
	call->qc_dqblk.dqb_valid = QIF_LIMITS;
	CHECK(llapi_quotactl(mnt, call) == 0);
	call->qc_dqblk.dqb_bsoftlimit = MIB + 1;
	REFUSES(llapi_quotactl(mnt, call), EINVAL);
	call->qc_id = 0;
	REFUSES(llapi_quotactl(mnt, call), EINVAL);
	call = of(LUSTRE_Q_SETDEFAULT, GRPQUOTA, 0);
	call->qc_dqblk.dqb_ihardlimit = 900;
	call->qc_dqblk.dqb_valid = QIF_ILIMITS;
	CHECK(llapi_quotactl(mnt, call) == 0);
	/* Own limits of a project, and their removal. */
	call = of(LUSTRE_Q_SETQUOTA, PRJQUOTA, 7);
	call->qc_dqblk.dqb_bhardlimit = 2048;
	call->qc_dqblk.dqb_valid = QIF_BLIMITS;
	CHECK(llapi_quotactl(mnt, call) == 0);
	call = of(LUSTRE_Q_GETQUOTA, PRJQUOTA, 7);
	CHECK(llapi_quotactl(mnt, call) == 0 && call->qc_dqblk.dqb_bhardlimit == 2048);
	CHECK(llapi_quotactl(mnt, of(LUSTRE_Q_DELETEQID, PRJQUOTA, 7)) == 0);
	call = of(LUSTRE_Q_GETQUOTA, PRJQUOTA, 7);
	CHECK(llapi_quotactl(mnt, call) == 0 && call->qc_dqblk.dqb_bhardlimit == 0);
	/* There are no pools. */
	call = of(LUSTRE_Q_GETQUOTAPOOL, USRQUOTA, USER);
	strcpy(quota.room + sizeof(*call), "nopool");
	REFUSES(llapi_quotactl(mnt, call), ENOENT);
	REFUSES(llapi_quotactl(mnt, of(LUSTRE_Q_RESETQID, USRQUOTA, USER)), EOPNOTSUPP);
	REFUSES(llapi_quotactl(mnt, of(LUSTRE_Q_GETQUOTA, 3, USER)), EINVAL);
	REFUSES(llapi_quotactl("/tmp", of(LUSTRE_Q_GETQUOTA, USRQUOTA, USER)), ENOTTY);
	REFUSES(llapi_quotactl(mnt, NULL), EINVAL);
}

int main(int argc, char **argv)
{
	struct if_quotactl *call;

	CHECK(argc == 3);
	if (strcmp(argv[2], "set") == 0) {
		set(argv[1]);
	} else {
		call = of(LUSTRE_Q_SETQUOTA, USRQUOTA, USER);
		call->qc_dqblk.dqb_valid = QIF_BLIMITS;
		REFUSES(llapi_quotactl(argv[1], call), EPERM);
		REFUSES(llapi_quotactl(argv[1], of(LUSTRE_Q_GETQUOTA, USRQUOTA, 0)), EPERM);
	}
	get(argv[1]);
	return 0;
}
